// Every wait, event and synchronisation of the backend is needed, and all of its work is on the
// stream on which it must be: each wait is switched off in turn, each kernel, copy and free put on
// another stream, and the emulated GPU finds what was kept apart, or the logits are others.
#include <functional>
#include <string>
#include <vector>

#include "tests/cuda/gpu_life.h"
#include "tests/cuda/request_life.h"

namespace deltad {
namespace {

// A part of the waits each, so that they run side by side.
constexpr size_t kParts = 4;
class CudaOrder : public testing::EmulatedGpuTest, public ::testing::WithParamInterface<size_t> {};
INSTANTIATE_TEST_SUITE_P(Part, CudaOrder, ::testing::Range(size_t{0}, kParts));

emulated_gpu::Options with(emulated_gpu::Order order, uint32_t seed) {
  emulated_gpu::Options options;
  options.order = order;
  options.seed = seed;
  options.site_frames = 1;  // a site is the function that calls
  options.races_in_kernels = false;
  return options;
}

// A load that is given up: nothing of it may be under way when the backend is gone.
void give_up_a_load() {
  auto backend = make_cuda_backend({0, 1});
  if (!backend.ok()) return;
  const WeightSpec norm{WeightKind::kVector, {{"norm", 64}}, 1};
  const std::vector<uint16_t> values(64, 1);
  if ((*backend)->declare_weights({norm}).ok())
    (void)(*backend)->put_rows(0, 0, 0, 64, values.data());
}

// What was found with one thing broken by `mutate`; "" if nothing shows.
std::string broken(const std::function<void()>& mutate, const std::vector<float>& expected) {
  for (const auto& options :
       {with(emulated_gpu::Order::kLatest, 1), with(emulated_gpu::Order::kRandom, 1),
        with(emulated_gpu::Order::kEager, 1), with(emulated_gpu::Order::kRandom, 2)}) {
    emulated_gpu::reset(options);
    mutate();
    bool same = false;
    {
      testing::GpuLife life;
      const auto logits = life.run();
      same = logits.ok() && *logits == expected;
    }
    give_up_a_load();
    const std::string found = emulated_gpu::report() + emulated_gpu::leaks();
    if (!same || !found.empty()) return (same ? "" : "other logits\n") + found;
  }
  return "";
}

// Of the life as it should be.
void run_unbroken(std::vector<float>* expected) {
  emulated_gpu::reset(with(emulated_gpu::Order::kLatest, 1));
  {
    testing::GpuLife life;
    const auto logits = life.run();
    ASSERT_TRUE(logits.ok()) << logits.status().message();
    *expected = *logits;
  }
  give_up_a_load();
  EXPECT_EQ(emulated_gpu::report(), "");
}

TEST_P(CudaOrder, EachWaitIsNeeded) {
  std::vector<float> expected;
  run_unbroken(&expected);
  const auto sites = emulated_gpu::sync_sites();
  EXPECT_GT(sites.size(), 5u);
  for (size_t i = GetParam(); i < sites.size(); i += kParts) {
    const std::string where = emulated_gpu::describe_site(sites[i].key);
    // Holds back what is ordered next, so that who gives up a copy need not wait for all of it.
    if (where.find("HostTier::copy_back") != std::string::npos) continue;
    SCOPED_TRACE(sites[i].call + " " + where);
    const std::string found = broken([&] { emulated_gpu::switch_off(sites[i].key); }, expected);
    EXPECT_NE(found, "") << "is not needed";
    // Those that stand before a piece of pinned memory is filled again: it is just this that is
    // found.
    if (where.find("LoadRing::take") != std::string::npos ||
        where.find("StepStaging::make_room") != std::string::npos) {
      EXPECT_NE(found.find("pinned memory:"), std::string::npos) << found;
    }
  }
  emulated_gpu::reset();
}

// What was found in a request's life with the work of one site on another stream than its own; the
// life's tokens.
std::string misplaced(const std::string& site, emulated_gpu::Order order,
                      const testing::RequestFiles& files, std::vector<int32_t>* tokens) {
  emulated_gpu::reset(with(order, 1));
  if (!site.empty()) emulated_gpu::misplace(site);
  testing::RequestLife life(files);
  life.do_not_count_memory();  // a graph lacks what is misplaced
  EXPECT_TRUE(life.start().ok());
  const Status lived = life.live();
  *tokens = life.tokens();
  life.end();
  return lived.message() + emulated_gpu::report();
}

TEST_P(CudaOrder, AllWorkIsOnItsStream) {
  const testing::RequestFiles files;
  std::vector<int32_t> expected, tokens;
  EXPECT_EQ(misplaced("", emulated_gpu::Order::kEager, files, &expected), "");
  const auto sites = emulated_gpu::work_sites();
  EXPECT_GT(sites.size(), 20u);
  for (size_t i = GetParam(); i < sites.size(); i += kParts) {
    std::string found;
    for (const auto order : {emulated_gpu::Order::kEager, emulated_gpu::Order::kRandom}) {
      if (!found.empty()) break;
      found = misplaced(sites[i].key, order, files, &tokens);
      if (tokens != expected) found += "other tokens";
    }
    if (found.empty()) {  // nobody is in the way when a request's variant goes
      std::vector<float> logits;
      run_unbroken(&logits);
      found = broken([&] { emulated_gpu::misplace(sites[i].key); }, logits);
    }
    EXPECT_NE(found, "") << sites[i].text << " may be on any stream";
  }
  emulated_gpu::reset();
}

}  // namespace
}  // namespace deltad
