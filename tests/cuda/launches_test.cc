// Which kernels a step launches: the base pays for no variant that is not in its batch, and a
// weight for none that does not change it.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tensor/float16.h"
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

// Two blocks of outputs share their rows. The weight's second half is its first again.
TEST_F(CudaLaunches, OfPromptsAreInClustersOfBlocks) {
  constexpr int64_t kOutputs = 256, kColumns = 72;
  constexpr int32_t kRows = 3;
  auto made = make_cuda_backend({0, 1});
  ASSERT_TRUE(made.ok()) << made.status().message();
  Backend& backend = **made;
  std::vector<uint16_t> w(kOutputs * kColumns);
  for (size_t i = 0; i < w.size(); ++i)
    w[i] = f32_to_bf16(static_cast<float>(i % (w.size() / 2) % 61) / 32 - 1);
  const WeightSpec spec{WeightKind::kMatrix, {{"a", kOutputs}}, kColumns};
  ASSERT_TRUE(backend.declare_weights({spec}).ok());
  ASSERT_TRUE(backend.put_rows(0, 0, 0, kOutputs, w.data()).ok());
  ASSERT_TRUE(backend.finish_weights().ok());
  Ops& ops = backend.ops();
  const int64_t stride = ops.row_stride(kColumns);
  const std::vector<uint16_t> x(static_cast<size_t>(kRows * stride), f32_to_bf16(0.5f));
  Buffer in = std::move(*backend.allocate(x.size() * 2));
  Buffer out = std::move(*backend.allocate(kRows * kOutputs * 4));
  const TensorView y =
      matrix_view(out.data(), DType::kF32, kRows, kOutputs, kOutputs, DeviceKind::kCuda);
  const std::vector<int32_t> ids(kRows);
  const std::vector<RowGroup> groups = {{0, kRows, -1}};
  const int32_t block = 0;
  const std::vector<SequenceSpan> spans = {{0, kRows, 0, &block, false}};
  const Launches launches = of([&]() -> Status {
    RETURN_IF_ERROR(backend.upload(in.data(), x.data(), in.bytes()));
    ops.begin_step({ids, groups, spans, {}, {}});
    ops.linear(y, matrix_view(in.data(), DType::kBF16, kRows, kColumns, stride, DeviceKind::kCuda),
               0, groups, Epilogue::kStore);
    ASSIGN_OR_RETURN(const auto values, ops.download(y));
    for (int64_t r = 0; r < kRows; ++r) {
      const float* row = values.row<float>(r);
      EXPECT_TRUE(std::equal(row, row + kOutputs / 2, row + kOutputs / 2));
      EXPECT_TRUE(std::any_of(row, row + kOutputs / 2, [](float v) { return v != 0; }));
    }
    return ops.end_step({}).status();
  });
  const auto linear = std::find_if(launches.begin(), launches.end(), [](const std::string& l) {
    return l.starts_with("deltad_linear_prefill_r128 ");
  });
  ASSERT_NE(linear, launches.end());
  EXPECT_NE(linear->find(" grid 1x2x1 "), std::string::npos) << *linear;
  EXPECT_TRUE(linear->ends_with(" cluster 1x2x1")) << *linear;
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
