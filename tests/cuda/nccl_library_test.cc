// How NCCL is found, and what is said where it is not.
#include "backend/cuda/nccl_library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace deltad {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(NcclLibrary, SaysWhatBringsIt) {
  const auto nccl = load_nccl("libnccl.so.2-that-is-not-here");
  ASSERT_FALSE(nccl.ok());
  EXPECT_EQ(nccl.status().code(), Code::kUnimplemented);
  EXPECT_EQ(nccl.status().message(),
            "NCCL cannot be used: libnccl.so.2-that-is-not-here (cannot open shared object file: "
            "No such file or directory). The package libnccl2 brings it, or nvidia-nccl-cu13 of "
            "PyPI, whose lib folder $LD_LIBRARY_PATH must name");
}

TEST(NcclLibrary, MustBeNewEnoughAndWhole) {
  const auto old = load_nccl(DELTAD_OLD_NCCL);
  EXPECT_THAT(old.status().message(),
              AllOf(HasSubstr("it is version 2.12.12, and 2.14.0 or later is needed"),
                    HasSubstr("libnccl2")));
  const auto half = load_nccl(DELTAD_HALF_NCCL);
  EXPECT_THAT(half.status().message(), HasSubstr("it has no ncclGetErrorString"));
}

// The real one needs no GPU to say who it is.
TEST(NcclLibrary, IsTheToolkits) {
  if (!std::string(DELTAD_NCCL).ends_with(".so")) GTEST_SKIP() << "the toolkit has none";
  const auto nccl = load_nccl(DELTAD_NCCL);
  ASSERT_TRUE(nccl.ok()) << nccl.status().message();
  EXPECT_THAT(nccl->version(), ::testing::StartsWith("2."));
  const Status status = nccl->check(ncclInvalidUsage, nullptr, "ncclSend", "sending");
  EXPECT_THAT(status.message(), HasSubstr("ncclSend: invalid usage"));
  EXPECT_TRUE(nccl->check(ncclInProgress, nullptr, "ncclSend", "sending").ok());
}

}  // namespace
}  // namespace deltad
