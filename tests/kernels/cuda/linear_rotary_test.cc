// Rotary embedding and the cache's append as the decode kernel's epilogue, on the emulator.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/kernels/cuda/linear_rotary_case.h"
#include "tests/kernels/cuda/overlapping.h"

namespace deltad::cuda {

extern "C" void deltad_rope_append(RopeAppendParams p);

namespace {

using emulator::Options;
using emulator::Order;
using emulator::Report;

// Heads of one block of outputs; of two; three heads of 80 and parts of a set; heads of four.
struct Heads {
  int32_t heads, kv_heads, head_dim;
};
class LinearRotary : public testing::TestWithParam<Heads> {};
INSTANTIATE_TEST_SUITE_P(Heads, LinearRotary,
                         testing::Values(Heads{3, 1, 64}, Heads{2, 1, 128}, Heads{3, 1, 80},
                                         Heads{2, 1, 96}, Heads{1, 1, 256}));

TEST_P(LinearRotary, IsTheSameBitsAsAKernelOfItsOwn) {
  LinearRotaryCase c(GetParam().heads, GetParam().kv_heads, GetParam().head_dim, 600, 1);
  for (const int32_t splits : {1, 2}) {
    Report report;
    ASSERT_EQ(c.prepare(splits, launch_overlapping(deltad_rope_append, {}, &report)), "");
    ASSERT_TRUE(report.ok()) << report.text();
    for (const Order order : {Order::kFifo, Order::kLifo, Order::kRandom}) {
      const auto got = c.run(splits, {.order = order, .resident_blocks = 5}, &report);
      ASSERT_TRUE(report.ok()) << report.text();
      EXPECT_TRUE(got.qkv == c.want.qkv) << splits << " splits";
      EXPECT_TRUE(got.cache == c.want.cache) << splits << " splits";
    }
  }
}

TEST(LinearRotaryHeads, LieInWholeBlocks) {
  EXPECT_EQ(linear_head_blocks(64), 1);
  EXPECT_EQ(linear_head_blocks(80), 5);
  EXPECT_EQ(linear_head_blocks(96), 3);
  EXPECT_EQ(linear_head_blocks(112), 7);
  EXPECT_EQ(linear_head_blocks(128), 2);
  EXPECT_EQ(linear_head_blocks(192), 3);
  EXPECT_EQ(linear_head_blocks(256), 4);
  EXPECT_EQ(linear_head_blocks(120), 0);
  for (const int32_t head_dim : {144, 176, 208, 240}) EXPECT_EQ(linear_head_blocks(head_dim), 0);
  // Values of a set's heads fit where the rings were, for the most rows.
  int32_t most = 0;
  for (int32_t head_dim = 1; head_dim <= 256; ++head_dim) {
    most = std::max(most, linear_head_blocks(head_dim));
  }
  for (const LinearKernel& kernel : kLinearKernels) {
    EXPECT_LE(kernel.block_rows * (most * kLinearOutputs + 8) * 4,
              static_cast<int32_t>(linear_decode_shared(kernel)));
  }
}

}  // namespace
}  // namespace deltad::cuda
