// Every CUDA call that a request's life on two GPUs makes fails, on each of them, where it is made
// the first time; and kernels hang. Whoever asked hears of it with
// the rank's name, or nothing is lost; nobody waits longer than the bound; and when all is over
// nothing is left.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/cuda/ranks_world.h"

namespace deltad::testing {
namespace {

using ::testing::HasSubstr;

// A part of the calls each, so that they run side by side.
constexpr size_t kParts = 4;
class RanksFailures : public RanksTest, public ::testing::WithParamInterface<size_t> {
 protected:
  void begin_anew() {
    emulated_gpu::Options two = options();
    two.devices = 2;
    two.site_frames = 3;
    two.races_in_kernels = false;
    emulated_gpu::reset(two);
  }
  // *tokens: of the life.
  std::vector<NamedCall> calls_in_life(int device, std::vector<int32_t>* tokens) {
    begin_anew();
    size_t first = 0;
    {
      RequestLife life(files_, 2);
      EXPECT_TRUE(life.start().ok());
      first = emulated_gpu::call_count();
      const Status status = life.live();
      EXPECT_TRUE(status.ok()) << status.message();
      *tokens = life.tokens();
      life.end();
    }
    return named_calls(device, first);
  }
  // Of each place the first one. Of choosing a device none: it comes before every other call, and
  // takes as long to try as all of them.
  static std::vector<NamedCall> of_each_place(const std::vector<NamedCall>& calls) {
    std::set<std::pair<std::string, std::string>> places;
    std::vector<NamedCall> out;
    for (const NamedCall& call : calls)
      if (call.name != "cudaSetDevice" && places.insert({call.name, call.site}).second)
        out.push_back(call);
    return out;
  }
  // A kernel's launch, and not one of a load, for which nobody has a bound.
  static bool is_of_a_step(const NamedCall& call) {
    if (call.name != "cudaLaunchKernelExC") return false;
    for (const char* part : {"LoadRing", "CudaMatrix", "CudaVariantWeights", "CudaWeights"})
      if (call.site.find(part) != std::string::npos) return false;
    return true;
  }
  // Of each place where steps launch kernels one launch, in turns the first and the last: some are
  // in graphs. Each takes the bound's time.
  static std::vector<NamedCall> of_steps(const std::vector<NamedCall>& calls) {
    std::map<std::string, std::pair<size_t, size_t>> places;
    for (size_t k = 0; k < calls.size(); ++k)
      if (is_of_a_step(calls[k])) places.try_emplace(calls[k].site, k, k).first->second.second = k;
    std::vector<NamedCall> out;
    for (const auto& [site, launches] : places)
      out.push_back(calls[out.size() % 2 == 0 ? launches.first : launches.second]);
    return out;
  }
  const RequestFiles files_;
};
INSTANTIATE_TEST_SUITE_P(Part, RanksFailures, ::testing::Range(size_t{0}, kParts));

TEST_P(RanksFailures, OfEachCallNameTheRankAndLeaveNothing) {
  for (const int device : {0, 1}) {
    const std::string name = "rank " + std::to_string(device) + " of 2: ";
    std::vector<int32_t> tokens;
    const std::vector<NamedCall> calls = of_each_place(calls_in_life(device, &tokens));
    size_t heard = 0;
    for (size_t k = GetParam(); k < calls.size(); k += kParts) {
      SCOPED_TRACE(::testing::Message() << "GPU " << device << ", " << calls[k].name << " "
                                        << calls[k].number << ": " << calls[k].site);
      begin_anew();
      emulated_gpu::inject({.call = calls[k].number,
                            .error = cudaErrorMemoryAllocation,
                            .device = device,
                            .name = calls[k].name});
      {
        RequestLife life(files_, 2);
        life.do_not_count_memory();  // what a lost rank may still use is kept
        ASSERT_TRUE(life.start().ok());
        const Status status = life.live();
        heard += !status.ok();
        if (status.ok()) {
          EXPECT_EQ(life.tokens(), tokens);
        } else {
          EXPECT_THAT(status.message(), HasSubstr("cuda"));
          if (life.health().ok()) {
            EXPECT_TRUE(life.live().ok()) << "a load: all else goes on";
          } else {
            // A step: the ranks have lost step, for good.
            EXPECT_THAT(status.message(), HasSubstr(name));
            EXPECT_EQ(life.health().message(), status.message());
          }
        }
        life.end();
      }
      EXPECT_EQ(emulated_gpu::report(), "");
      // The last wait of all is for what was given back in the order of streams.
      if (calls[k].site.find("~CudaDevice") == std::string::npos) {
        EXPECT_EQ(emulated_gpu::leaks(), "");
      }
      if (HasFailure()) return;
    }
    EXPECT_GT(heard, 5u);
  }
  begin_anew();  // the last one may have been such a wait
}

// Kernels that do not end, one by one and in graphs: the step that waits for them does, in time.
TEST_P(RanksFailures, ThatHangAreFoundWithinTheBound) {
  for (const int device : {0, 1}) {
    const std::string name = "rank " + std::to_string(device) + " of 2: ";
    std::vector<int32_t> tokens;
    const std::vector<NamedCall> calls = of_steps(calls_in_life(device, &tokens));
    EXPECT_GT(calls.size(), kParts);
    for (size_t k = GetParam(); k < calls.size(); k += kParts) {
      const NamedCall& call = calls[k];
      SCOPED_TRACE(::testing::Message()
                   << "GPU " << device << ", launch " << call.number << ": " << call.site);
      begin_anew();
      emulated_gpu::inject(
          {.call = call.number, .error = 0, .hangs = true, .device = device, .name = call.name});
      {
        RequestLife life(files_, 2, std::chrono::seconds(1));
        life.do_not_count_memory();
        ASSERT_TRUE(life.start().ok());
        const Status status = life.live();
        EXPECT_THAT(status.message(), HasSubstr(name + "its GPU has kept the others waiting"));
        EXPECT_THAT(life.health().message(), HasSubstr(name));
        emulated_gpu::let_go();
        life.end();
      }
      if (HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace deltad::testing
