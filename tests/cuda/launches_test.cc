// Which kernels a step launches: the base pays for no variant that is not in its batch, and a
// weight for none that does not change it.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/cuda/gpu_life.h"

namespace deltad::testing {
namespace {

using Launches = std::vector<std::string>;

class CudaLaunches : public EmulatedGpuTest {
 protected:
  // Of what `steps` does.
  template <class Steps>
  Launches of(Steps steps) {
    const size_t before = emulated_gpu::launches().size();
    const Status status = steps();
    EXPECT_TRUE(status.ok()) << status.message();
    const Launches all = emulated_gpu::launches();
    return {all.begin() + static_cast<ptrdiff_t>(before), all.end()};
  }
  // A prompt with and without logits, generated rows on their own.
  static Status some_steps(GpuLife& life) {
    RETURN_IF_ERROR(life.prompt(0, 2, false));
    RETURN_IF_ERROR(life.prompt(2, 2, true));
    return life.generate(4, 2);
  }
  static int64_t count(const Launches& launches, const std::string& kernel) {
    return std::count_if(launches.begin(), launches.end(),
                         [&](const std::string& l) { return l.starts_with(kernel); });
  }
};

TEST_F(CudaLaunches, OfRowsOfTheBaseAreThoseOfABackendWithoutVariants) {
  Launches alone;
  {
    GpuLife life;
    ASSERT_TRUE(life.begin().ok());
    alone = of([&] { return some_steps(life); });
  }
  EXPECT_GT(count(alone, "deltad_linear_r16 "), 0);
  for (const std::string& launch : alone) EXPECT_EQ(launch.find("_signs"), std::string::npos);
  GpuLife life;
  ASSERT_TRUE(life.begin().ok());
  ASSERT_TRUE(life.enter(0, kTwoLevels).ok());
  ASSERT_TRUE(life.enter(1, kLowRank).ok());
  // Resident, then also bound to slots of the device's tables and just used.
  life.batch_variants(false);
  EXPECT_EQ(of([&] { return some_steps(life); }), alone);
  life.batch_variants(true);
  const Launches with = of([&] { return life.generate(6, 1); });
  EXPECT_GT(count(with, "deltad_sign_planes "), 0);
  EXPECT_GT(count(with, "deltad_low_rank_shrink "), 0);
  life.batch_variants(false);
  EXPECT_EQ(of([&] { return life.prompt(0, 2, false); }),
            Launches(alone.begin(), std::find_if(alone.begin() + 1, alone.end(), [](const auto& l) {
                       return l.starts_with("deltad_embed ");
                     })));
}

// The head of a variant with signs has none.
TEST_F(CudaLaunches, OfSignsAreThoseOfTheWeightsThatHaveThem) {
  GpuLife life;
  ASSERT_TRUE(life.begin().ok());
  ASSERT_TRUE(life.enter(0, kOneLevel).ok());
  const int64_t layers = life.config().layers;
  const Launches prompts = of([&] { return life.prompt(0, 2, true); });
  EXPECT_EQ(std::count_if(prompts.begin(), prompts.end(),
                          [](const std::string& l) {
                            return l.starts_with("deltad_linear_prefill") &&
                                   l.find("_signs1 ") != std::string::npos;
                          }),
            4 * layers);
  EXPECT_EQ(count(prompts, "deltad_sign_planes "), 0);
  const Launches launches = of([&] { return life.generate(2, 1); });
  EXPECT_EQ(count(launches, "deltad_sign_planes "), 4 * layers);
  EXPECT_EQ(count(launches, "deltad_linear_r16_signs1 "), 4 * layers);
  EXPECT_EQ(count(launches, "deltad_linear_r16 "), 1);
  EXPECT_TRUE(launches.back().starts_with("deltad_linear_r16 ")) << launches.back();
  EXPECT_EQ(count(launches, "deltad_low_rank"), 0);
  EXPECT_EQ(count(launches, "deltad_silu_gate "), 0);
}

// Of four fused weights in three layers, two in two layers have factors.
TEST_F(CudaLaunches, OfFactorsAreThoseOfTheWeightsThatHaveThem) {
  GpuLife life;
  ASSERT_TRUE(life.begin().ok());
  const Launches alone = of([&] { return life.prompt(0, 2, true); });
  ASSERT_TRUE(life.enter(0, kLowRankSome).ok());
  const Launches launches = of([&] { return life.prompt(2, 2, true); });
  EXPECT_EQ(count(launches, "deltad_low_rank_shrink "), 4);
  EXPECT_EQ(count(launches, "deltad_low_rank_expand "), 4);
  EXPECT_EQ(count(launches, "deltad_sign_planes "), 0);
  EXPECT_EQ(count(launches, "deltad_silu_gate "), 0);
  EXPECT_EQ(count(launches, "deltad_linear_r16 "), count(alone, "deltad_linear_r16 "));
  EXPECT_EQ(launches.size(), alone.size() + 8);
}

}  // namespace
}  // namespace deltad::testing
