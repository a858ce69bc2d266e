// Every wait, event and synchronisation of the backend is needed: each is switched off in turn, and
// the emulated GPU finds what it kept apart, or the logits are others.
#include <set>
#include <string>

#include "tests/cuda/gpu_life.h"

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

// What was found with one site switched off; "" if nothing shows.
std::string without(const std::string& site, const std::vector<float>& expected) {
  for (const auto& options :
       {with(emulated_gpu::Order::kLatest, 1), with(emulated_gpu::Order::kRandom, 1),
        with(emulated_gpu::Order::kEager, 1), with(emulated_gpu::Order::kRandom, 2)}) {
    emulated_gpu::reset(options);
    emulated_gpu::switch_off(site);
    bool same = false;
    {
      testing::GpuLife life;
      const auto logits = life.run();
      same = logits.ok() && *logits == expected;
    }
    give_up_a_load();
    if (!same) return "other logits";
    if (const std::string found = emulated_gpu::report() + emulated_gpu::leaks(); !found.empty())
      return found;
  }
  return "";
}

TEST_P(CudaOrder, EachWaitIsNeeded) {
  std::vector<float> expected;
  emulated_gpu::reset(with(emulated_gpu::Order::kLatest, 1));
  {
    testing::GpuLife life;
    const auto logits = life.run();
    ASSERT_TRUE(logits.ok()) << logits.status().message();
    expected = *logits;
  }
  give_up_a_load();
  EXPECT_EQ(emulated_gpu::report(), "");
  const auto sites = emulated_gpu::sync_sites();
  EXPECT_GT(sites.size(), 5u);
  for (size_t i = GetParam(); i < sites.size(); i += kParts)
    EXPECT_NE(without(sites[i].key, expected), "")
        << sites[i].call << " " << emulated_gpu::describe_site(sites[i].key) << " is not needed";
  emulated_gpu::reset();
}

}  // namespace
}  // namespace deltad
