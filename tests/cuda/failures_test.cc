// Every CUDA call of a model's life on the GPU fails once, at each place in the program that makes
// it: whoever asked hears of it, or nothing is lost; nothing hangs, and all memory comes back.
#include <cuda_runtime_api.h>

#include <map>
#include <utility>

#include "tests/cuda/gpu_life.h"

namespace deltad {
namespace {

// A part of the places each, so that they run side by side.
constexpr size_t kParts = 4;
class CudaFailures : public testing::EmulatedGpuTest,
                     public ::testing::WithParamInterface<size_t> {};
INSTANTIATE_TEST_SUITE_P(Part, CudaFailures, ::testing::Range(size_t{0}, kParts));

// Calls that do no more than free, and what destructors wait for (CudaBackend's has no name); a
// variant's, of which there is another way to wait.
bool may_go_unheard(const std::string& place) {
  for (const char* part : {"Free", "Destroy", "Unload", "cudaDeviceSynchronize", "~",
                           "cuda_backend.cc", "order_after_steps"})
    if (place.find(part) != std::string::npos) return true;
  return false;
}

// A place is the function that calls.
emulated_gpu::Options by_function() {
  emulated_gpu::Options options;
  options.site_frames = 1;
  return options;
}

// The first call at each place.
std::map<std::pair<std::string, std::string>, size_t> first_calls() {
  std::map<std::pair<std::string, std::string>, size_t> first;
  size_t number = 0;
  for (const emulated_gpu::CallRecord& call : emulated_gpu::calls())
    first.try_emplace({call.name, call.site}, number++);
  return first;
}

std::map<std::pair<std::string, std::string>, size_t> places() {
  emulated_gpu::reset(by_function());
  {
    testing::GpuLife life;
    EXPECT_TRUE(life.run().ok());
  }
  return first_calls();
}

TEST_P(CudaFailures, OfEachCallAreHeardOfAndLeaveNothing) {
  size_t heard = 0, part = 0;
  for (const auto& [place, number] : places()) {
    if (part++ % kParts != GetParam()) continue;
    const std::string where = place.first + " " + emulated_gpu::describe_site(place.second);
    SCOPED_TRACE(where);
    emulated_gpu::reset(by_function());
    emulated_gpu::inject({number, cudaErrorMemoryAllocation});
    {
      testing::GpuLife life;
      const auto logits = life.run();
      if (!logits.ok()) {
        ++heard;
        EXPECT_NE(logits.status().message().find("cuda"), std::string::npos)
            << logits.status().message();
      } else {
        EXPECT_TRUE(may_go_unheard(where)) << "nobody heard of it";
      }
      if (life.backend() != nullptr) {
        EXPECT_TRUE(life.backend()->health().ok());
      }
    }
    EXPECT_EQ(emulated_gpu::report(), "");
    // The last wait of all is for what was given back in the order of streams.
    if (where.find("~CudaDevice") != std::string::npos) continue;
    EXPECT_EQ(emulated_gpu::leaks(), "");
    EXPECT_EQ(emulated_gpu::allocated_bytes(), 0u);
  }
  EXPECT_GT(heard, 20u / kParts);
  emulated_gpu::reset();
}

// Work that fails on the device takes the context with it: the device is unhealthy for good.
TEST_P(CudaFailures, OfWorkOnTheDeviceMakeItUnhealthy) {
  size_t part = 0;
  for (const auto& [place, number] : places()) {
    if (part++ % kParts != GetParam()) continue;
    if (place.first != "cudaLaunchKernelExC" && place.first != "cudaGraphLaunch") continue;
    SCOPED_TRACE(place.first + " " + emulated_gpu::describe_site(place.second));
    emulated_gpu::reset(by_function());
    emulated_gpu::inject(
        {.call = number, .error = cudaErrorIllegalAddress, .sticky = true, .at_execution = true});
    testing::GpuLife life;
    EXPECT_FALSE(life.run().ok());
    if (life.backend() == nullptr) continue;  // while the base was loaded
    EXPECT_FALSE(life.backend()->health().ok());
    EXPECT_FALSE(life.prompt(20, 1, true).ok());
  }
  emulated_gpu::reset();
}

}  // namespace
}  // namespace deltad
