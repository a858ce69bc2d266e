// Which backend `device` gives, in a program that was built without CUDA.
#include "deltad/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/random_model.h"

namespace deltad {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

const CpuBackendOptions kCpu{1, false, "scalar"};

TEST(Device, HasThreeNames) {
  DeviceChoice choice = DeviceChoice::kAuto;
  EXPECT_TRUE(parse_device("cuda", &choice));
  EXPECT_EQ(choice, DeviceChoice::kCuda);
  EXPECT_FALSE(parse_device("gpu", &choice));
  EXPECT_EQ(choice, DeviceChoice::kCuda);
  EXPECT_STREQ(device_name(DeviceChoice::kAuto), "auto");
}

TEST(Device, AutoFallsBackToTheCpu) {
  const auto made = make_backend(DeviceChoice::kAuto, kCpu);
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_THAT((*made)->description(), StartsWith("CPU, scalar"));
}

TEST(Device, CudaIsAnErrorWithoutIt) {
  const auto made = make_backend(DeviceChoice::kCuda, kCpu);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.status().code(), Code::kUnimplemented);
  EXPECT_THAT(made.status().message(), HasSubstr("device: cuda: this program was built without"));
}

TEST(Device, AutoDoesNotFallBackWhereACommunicatorOfGpusIsAskedFor) {
  ParallelOptions two;
  two.ranks = 2;
  const auto make = [&](CommunicatorChoice choice) {
    return make_parallel_backend(DeviceChoice::kAuto, choice, testing::even_model(), kCpu, two)
        .status();
  };
  EXPECT_TRUE(make(CommunicatorChoice::kAuto).ok());
  EXPECT_THAT(make(CommunicatorChoice::kNccl).message(),
              StartsWith("device: auto with communicator: nccl: "));
}

TEST(Device, BackendsAreNamed) {
  EXPECT_THAT(backend_list(DeviceChoice::kAuto),
              ::testing::ElementsAre(StartsWith("CPU, "), "CUDA: not built in"));
  EXPECT_THAT(backend_list(DeviceChoice::kCpu),
              ::testing::ElementsAre(StartsWith("CPU, "), "CUDA: not asked (device: cpu)"));
}

}  // namespace
}  // namespace deltad
