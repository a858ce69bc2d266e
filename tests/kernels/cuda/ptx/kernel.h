// Kernels of kernels/cuda as nvcc compiled them, launched like the emulator launches them as C++:
// on the buffers that the test made (emulator::DeviceBuffer), whose addresses are the host's. One
// of two files runs them: interpreted.cc their PTX on the CPU (test_cuda_ptx), ../card/on_card.cc
// the machine code on a card (test_cuda_card), without what weakens a kernel.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <string>

#include "tests/kernels/cuda/launcher.h"
#include "tests/support/cuda_on_cpu/global_memory.h"
#include "tests/support/ptx/tests/ptx_run.h"

namespace deltad::cuda {

// Whether what was compiled for the architecture ("sm_90a") can run here.
bool can_run(const std::string& arch);

class PtxFile {
 public:
  // kernels/cuda/FILE.cu, compiled for the architecture.
  PtxFile(const std::string& arch, const std::string& file)
      : path_(std::string(DELTAD_PTX) + "/" + arch + "/" + file),
        module_(ptx::load_file(path_ + ".ptx")),
        can_overlap_(arch != "sm_80") {}

  ptx::Outcome run(const char* kernel, const Launch& l, std::span<const std::byte> params,
                   const ptx::Options& options, bool overlaps_previous);
  // For a case's run(): launches the kernel that it names. `out`: of all those launches.
  auto launcher(const ptx::Options& options, ptx::Outcome& out) {
    out = {};
    return [this, options, &out](const char* kernel, const Launch& l, const auto& p) {
      out.add(run(kernel, l, std::as_bytes(std::span(&p, 1)), options, true));
    };
  }
  bool has(const std::string& kernel) const {
    const std::vector<std::string> all = module_->kernels();
    return std::find(all.begin(), all.end(), kernel) != all.end();
  }
  ptx::Module& module() { return *module_; }

 private:
  const std::string path_;  // without the ending
  std::unique_ptr<ptx::Module> module_;
  bool can_overlap_;
};

// Tests whose parameter is an architecture.
class ArchitectureTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!can_run(GetParam())) GTEST_SKIP() << GetParam() << " does not run here";
  }
};

}  // namespace deltad::cuda
