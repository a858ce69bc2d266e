// Rotary embedding and the cache's append on the emulator, against the fp64 oracle.
#include <gtest/gtest.h>

#include <set>

#include "tests/kernels/cuda/mutations.h"
#include "tests/kernels/cuda/overlapping.h"
#include "tests/kernels/cuda/rope_append_case.h"
#include "tests/support/cuda_on_cpu/launch.h"

namespace deltad::cuda {

extern "C" void deltad_rope_append(RopeAppendParams p);

namespace {

using emulator::Options;
using emulator::Order;
using emulator::Report;

auto emulated(const Options& options, Report* report) {
  return launch_overlapping(deltad_rope_append, options, report);
}

struct Heads {
  int32_t heads, kv_heads, head_dim;
};
class RopeAppend : public testing::TestWithParam<Heads> {
 protected:
  const RopeAppendCase c_{GetParam().heads, GetParam().kv_heads, GetParam().head_dim};
};
INSTANTIATE_TEST_SUITE_P(Heads, RopeAppend,
                         testing::Values(Heads{9, 3, 64}, Heads{1, 1, 80}, Heads{4, 2, 96},
                                         Heads{8, 1, 128}, Heads{3, 3, 120}, Heads{2, 1, 256}));

TEST_P(RopeAppend, EqualsTheOracle) {
  for (const Order order : {Order::kFifo, Order::kLifo, Order::kRandom}) {
    Report report;
    const auto out =
        c_.run(0, c_.rows(), emulated({.order = order, .resident_blocks = 4}, &report));
    ASSERT_TRUE(report.ok()) << report.text();
    EXPECT_EQ(c_.wrong(out), "");
  }
}

TEST_P(RopeAppend, RowsAloneAreTheSameBits) {
  Report report;
  const auto all = c_.run(0, c_.rows(), emulated({}, &report));
  for (int32_t row = 0; row < c_.rows(); ++row) {
    const auto alone = c_.run(row, row + 1, emulated({}, &report));
    ASSERT_TRUE(report.ok()) << report.text();
    EXPECT_TRUE(
        std::equal(alone.qkv.begin(), alone.qkv.end(), all.qkv.begin() + row * c_.columns()));
    for (int32_t head = 0; head < c_.kv_heads; ++head) {
      for (int32_t d = 0; d < c_.padded(); ++d) {
        for (const size_t at : {c_.key_at(row, head, d), c_.value_at(row, head, d)}) {
          EXPECT_EQ(alone.cache[at], all.cache[at]);
        }
      }
    }
  }
}

TEST(RopeAppendSites, AllMatter) {
  const RopeAppendCase c(3, 1, 80);
  expect_every_site_matters([&](const Options& options, Report* report) {
    return c.run(0, c.rows(), emulated(options, report));
  });
}

// Every place of a block's part is some position's dimension, of a key or of a value.
TEST(KvCacheLayout, HoldsEveryElementOnce) {
  for (const int32_t padded : {64, 96, 128, 192, 256}) {
    std::set<int32_t> places;
    for (int32_t token = 0; token < kKvTokens; ++token) {
      for (int32_t dim = 0; dim < padded; ++dim) {
        places.insert(key_index(token, dim));
        places.insert(value_index(token, dim, padded));
      }
    }
    EXPECT_EQ(static_cast<int64_t>(places.size()), kv_head_values(padded));
    EXPECT_EQ(*places.begin(), 0);
    EXPECT_EQ(*places.rbegin() + 1, kv_head_values(padded));
  }
}

}  // namespace
}  // namespace deltad::cuda
