// Every CUDA call of a request's life fails once, each time that it is made: the loads of its
// variants, its steps, their eviction, the end. Whoever asked hears of it, or nothing is lost; all
// else goes on; nothing hangs, and all memory comes back. And of errors that stay: the GPU is
// unhealthy for good.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "tests/cuda/request_life.h"

namespace deltad {
namespace {

using testing::RequestFiles;
using testing::RequestLife;
using Place = std::pair<std::string, std::string>;  // the call, and the function that makes it

// A part of the calls each, so that they run side by side.
constexpr size_t kParts = 4;
class CudaFailures : public testing::EmulatedGpuTest, public ::testing::WithParamInterface<size_t> {
 protected:
  bool mine(size_t n) const { return n % kParts == GetParam(); }
  void begin_anew() {
    emulated_gpu::Options options;
    options.site_frames = 1;
    options.memory_bytes = 64 << 20;
    options.races_in_kernels = false;
    // Loads ask whether work has ended, again and again: each has the same calls only where it has.
    options.order = emulated_gpu::Order::kEager;
    emulated_gpu::reset(options);
  }
  const RequestFiles files_;
};
INSTANTIATE_TEST_SUITE_P(Part, CudaFailures, ::testing::Range(size_t{0}, kParts));

Place place_of(const emulated_gpu::CallRecord& call) { return {call.name, call.site}; }
std::string text_of(const Place& place) {
  return place.first + " " + emulated_gpu::describe_site(place.second);
}

// Calls that do no more than free, and what destructors wait for (CudaBackend's has no name); a
// variant's, of which there is another way to wait; and making room for preempted sequences, which
// are computed again without it, as the log says.
bool may_go_unheard(const Place& place) {
  const std::string text = text_of(place);
  for (const char* part : {"Free", "Destroy", "Unload", "wait_for_all", "~", "cuda_backend.cc",
                           "order_after_steps", "free_bytes", "CudaKvSwap::make"})
    if (text.find(part) != std::string::npos) return true;
  return false;
}

// Without memory an allocation is tried once more (memory_test.cc); other errors are not.
int error_of(const emulated_gpu::CallRecord& call) {
  return call.name.starts_with("cudaMalloc") ? cudaErrorInvalidValue : cudaErrorMemoryAllocation;
}

// A failure of call k, if it was heard of, says which call it was.
void expect_heard(const Status& status, const std::vector<emulated_gpu::CallRecord>& calls,
                  size_t k) {
  if (status.ok()) {
    // A destructor chooses its device first.
    const bool of_next = calls[k].name == "cudaSetDevice" && k + 1 < calls.size();
    EXPECT_TRUE(may_go_unheard(place_of(calls[of_next ? k + 1 : k]))) << "nobody heard of it";
  } else {
    EXPECT_NE(status.message().find("cuda"), std::string::npos) << status.message();
  }
}

void expect_nothing_left(const Place& place) {
  EXPECT_EQ(emulated_gpu::report(), "");
  // The last wait of all is for what was given back in the order of streams.
  if (text_of(place).find("~CudaDevice") != std::string::npos) return;
  EXPECT_EQ(emulated_gpu::leaks(), "");
  EXPECT_EQ(emulated_gpu::allocated_bytes(), 0u);
}

// The calls of a whole life: where its parts begin.
struct Calls {
  std::vector<emulated_gpu::CallRecord> all;
  size_t first_life = 0, later_life = 0, end = 0;
  std::vector<int32_t> tokens;
};
Calls calls_of(const RequestFiles& files) {
  Calls calls;
  RequestLife life(files);
  EXPECT_TRUE(life.start().ok());
  calls.first_life = emulated_gpu::call_count();
  const Status lived = life.live();
  EXPECT_TRUE(lived.ok()) << lived.message();
  EXPECT_TRUE(life.live().ok());  // what is needed once is there now
  calls.later_life = emulated_gpu::call_count();
  EXPECT_TRUE(life.live().ok());
  calls.end = emulated_gpu::call_count();
  calls.tokens = life.tokens();
  life.end();
  calls.all = emulated_gpu::calls();
  return calls;
}

TEST_P(CudaFailures, OfEachCallInALifeAreHeardOfAndAllElseGoesOn) {
  begin_anew();
  const Calls calls = calls_of(files_);
  RequestLife life(files_);
  ASSERT_TRUE(life.start().ok() && life.live().ok() && life.live().ok());
  const size_t pinned = emulated_gpu::pinned_bytes();
  size_t heard = 0;
  for (size_t k = calls.later_life; k < calls.end; ++k) {
    if (!mine(k)) continue;
    const Place place = place_of(calls.all[k]);
    SCOPED_TRACE("call " + std::to_string(k - calls.later_life) + ": " + text_of(place));
    const size_t number = emulated_gpu::call_count() + k - calls.later_life;
    emulated_gpu::inject({number, error_of(calls.all[k])});
    const Status status = life.live();
    heard += status.ok() ? 0 : 1;
    expect_heard(status, calls.all, k);
    ASSERT_GT(emulated_gpu::call_count(), number);
    EXPECT_EQ(place_of(emulated_gpu::calls()[number]), place);
    EXPECT_TRUE(life.health().ok());
    // Nothing of it is left, and the next one has nothing to suffer.
    life.check_memory("after the failure");
    EXPECT_EQ(emulated_gpu::pinned_bytes(), pinned);
    if (heard % 8 != 1) continue;
    ASSERT_TRUE(life.live().ok());
    EXPECT_EQ(life.tokens(), calls.tokens);
  }
  ASSERT_TRUE(life.live().ok());
  EXPECT_EQ(life.tokens(), calls.tokens);
  EXPECT_GT(heard, 20u);
  life.end();
}

// The calls that are made once: at the start, in the first life, at the end.
TEST_P(CudaFailures, OfEachCallThatComesOnceAreHeardOfAndLeaveNothing) {
  begin_anew();
  const Calls calls = calls_of(files_);
  std::set<Place> later;
  for (size_t k = calls.later_life; k < calls.end; ++k) later.insert(place_of(calls.all[k]));
  std::set<Place> at_start;
  for (size_t k = 0; k < calls.all.size(); ++k) {
    const Place place = place_of(calls.all[k]);
    // Of the start, which no request sees, a call a place.
    const bool is_start = k < calls.first_life;
    if (is_start ? !at_start.insert(place).second : later.contains(place)) continue;
    if (!mine(k)) continue;
    SCOPED_TRACE("call " + std::to_string(k) + ": " + text_of(place));
    begin_anew();
    emulated_gpu::inject({k, error_of(calls.all[k])});
    {
      RequestLife life(files_);
      Status status = life.start();
      const bool started = status.ok();
      for (int lives = 0; lives < 3 && status.ok(); ++lives) status = life.live();
      if (started && !status.ok()) {
        EXPECT_TRUE(life.health().ok());
        EXPECT_TRUE(life.live().ok());
        EXPECT_EQ(life.tokens(), calls.tokens);
      }
      life.end();
      expect_heard(status, calls.all, k);
    }
    expect_nothing_left(place);
  }
  emulated_gpu::reset();
}

// Errors that stay, of a call or of the work that it handed over: the context is lost.
void expect_unhealthy(const RequestFiles& files, const emulated_gpu::Failure& failure) {
  emulated_gpu::inject(failure);
  RequestLife life(files);
  ASSERT_TRUE(life.start().ok());
  Status status;
  for (int lives = 0; lives < 3 && status.ok(); ++lives) status = life.live();
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.message().find("illegal memory access"), std::string::npos) << status.message();
  EXPECT_FALSE(life.health().ok());
  EXPECT_FALSE(life.live().ok());
  life.end();
  EXPECT_EQ(emulated_gpu::report(), "");
  EXPECT_EQ(emulated_gpu::leaks(), "");
}

TEST_P(CudaFailures, ThatStayMakeTheGpuUnhealthy) {
  begin_anew();
  const Calls calls = calls_of(files_);
  std::set<Place> tried;
  for (size_t k = calls.first_life; k < calls.end; ++k) {
    const Place place = place_of(calls.all[k]);
    if (!tried.insert(place).second || !mine(tried.size())) continue;
    SCOPED_TRACE("call " + std::to_string(k) + ": " + text_of(place));
    begin_anew();
    expect_unhealthy(files_, {.call = k, .error = cudaErrorIllegalAddress, .sticky = true});
  }
  size_t work = 0;
  for (size_t k = calls.first_life; k < calls.later_life; ++k) {
    const std::string& name = calls.all[k].name;
    const bool hands_over = name == "cudaLaunchKernelExC" || name == "cudaGraphLaunch" ||
                            name.starts_with("cudaMemcpy");
    if (!hands_over || work++ % 32 != 8 * GetParam()) continue;  // some of them
    SCOPED_TRACE("work of call " + std::to_string(k) + ": " + text_of(place_of(calls.all[k])));
    begin_anew();
    expect_unhealthy(
        files_,
        {.call = k, .error = cudaErrorIllegalAddress, .sticky = true, .at_execution = true});
  }
}

}  // namespace
}  // namespace deltad
