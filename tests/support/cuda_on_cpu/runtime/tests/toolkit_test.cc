// The emulated headers against the toolkit's. Only where the toolkit is found.
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <nccl.h>

#include "tests/support/cuda_on_cpu/runtime/tests/toolkit_table.h"

namespace deltad::emulated_gpu {
namespace {

TEST(Toolkit, SaysTheSameOfTheRuntime) {
  Names names;
#include "toolkit_runtime.inc"
  EXPECT_EQ(names, runtime_of_toolkit());
  EXPECT_GT(names.size(), 200u);
}

TEST(Toolkit, SaysTheSameOfLibraries) {
  Names names;
#include "toolkit_libraries.inc"
  EXPECT_EQ(names, libraries_of_toolkit());
  EXPECT_GT(names.size(), 80u);
}

}  // namespace
}  // namespace deltad::emulated_gpu
