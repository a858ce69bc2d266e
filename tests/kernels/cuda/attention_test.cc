// Both attention kernels on the emulator, against the fp64 oracle.
#include <gtest/gtest.h>

#include <string_view>

#include "tests/kernels/cuda/attention_case.h"
#include "tests/kernels/cuda/mutations.h"
#include "tests/kernels/cuda/overlapping.h"
#include "tests/support/cuda_on_cpu/launch.h"

namespace deltad::cuda {

extern "C" {
void deltad_attention_decode_d64(AttentionDecodeParams p);
void deltad_attention_decode_d96(AttentionDecodeParams p);
void deltad_attention_decode_d128(AttentionDecodeParams p);
void deltad_attention_decode_d192(AttentionDecodeParams p);
void deltad_attention_decode_d256(AttentionDecodeParams p);
void deltad_attention_prefill_d64(AttentionPrefillParams p);
void deltad_attention_prefill_d96(AttentionPrefillParams p);
void deltad_attention_prefill_d128(AttentionPrefillParams p);
void deltad_attention_prefill_d192(AttentionPrefillParams p);
void deltad_attention_prefill_d256(AttentionPrefillParams p);
}

namespace {

using emulator::Options;
using emulator::Order;
using emulator::Report;

void (*kernel_of(const std::string_view name,
                 const AttentionDecodeParams&))(AttentionDecodeParams) {
  return name == attention_decode_kernel(64)    ? deltad_attention_decode_d64
         : name == attention_decode_kernel(96)  ? deltad_attention_decode_d96
         : name == attention_decode_kernel(128) ? deltad_attention_decode_d128
         : name == attention_decode_kernel(192) ? deltad_attention_decode_d192
                                                : deltad_attention_decode_d256;
}
void (*kernel_of(const std::string_view name,
                 const AttentionPrefillParams&))(AttentionPrefillParams) {
  return name == attention_prefill_kernel(64)    ? deltad_attention_prefill_d64
         : name == attention_prefill_kernel(96)  ? deltad_attention_prefill_d96
         : name == attention_prefill_kernel(128) ? deltad_attention_prefill_d128
         : name == attention_prefill_kernel(192) ? deltad_attention_prefill_d192
                                                 : deltad_attention_prefill_d256;
}

auto emulated(const Options& options, Report* report) {
  return [options = overlapping(options), report](const char* name, const Launch& shape,
                                                  const auto& p) {
    *report = emulator::launch(kernel_of(name, p), shape, p, options);
  };
}

struct Heads {
  int32_t heads, kv_heads, head_dim;
};
// One head a kv head, groups of 3, 8 and 12, sizes that fill their kernel's and that do not.
const auto kHeads =
    testing::Values(Heads{3, 1, 64}, Heads{2, 2, 80}, Heads{4, 2, 96}, Heads{8, 1, 128},
                    Heads{12, 1, 64}, Heads{1, 1, 120}, Heads{2, 1, 192}, Heads{2, 1, 256});

class AttentionDecode : public testing::TestWithParam<Heads> {
 protected:
  // One position, ends and starts of blocks and of segments, several segments.
  const AttentionCase c_{GetParam().heads,
                         GetParam().kv_heads,
                         GetParam().head_dim,
                         {{1, 1}, {16, 1}, {17, 1}, {61, 1}, {256, 1}, {257, 1}, {700, 1}}};
};
INSTANTIATE_TEST_SUITE_P(Heads, AttentionDecode, kHeads);

TEST_P(AttentionDecode, EqualsTheOracle) {
  for (const Order order : {Order::kFifo, Order::kLifo, Order::kRandom}) {
    Report report;
    const auto out =
        c_.decode(0, c_.rows(), emulated({.order = order, .resident_blocks = 4}, &report));
    ASSERT_TRUE(report.ok()) << report.text();
    EXPECT_EQ(c_.wrong(out, AttentionCase::kDecodeRounding), "");
  }
}

TEST_P(AttentionDecode, RowsAloneAreTheSameBits) {
  Report report;
  const auto all = c_.decode(0, c_.rows(), emulated({}, &report));
  for (int32_t row = 0; row < c_.rows(); ++row) {
    const auto alone =
        c_.decode(row, row + 1, emulated({.order = Order::kRandom}, &report), row % 2);
    ASSERT_TRUE(report.ok()) << report.text();
    ASSERT_FALSE(alone.empty());
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), all.begin() + row * c_.out_columns()));
  }
}

class AttentionPrefill : public testing::TestWithParam<Heads> {
 protected:
  // A whole prompt of two tiles, a short one, a chunk far behind its beginning, a row alone.
  const AttentionCase c_{GetParam().heads,
                         GetParam().kv_heads,
                         GetParam().head_dim,
                         {{75, 75}, {3, 3}, {141, 20}, {64, 1}}};
};
INSTANTIATE_TEST_SUITE_P(Heads, AttentionPrefill, kHeads);

TEST_P(AttentionPrefill, EqualsTheOracle) {
  for (const Order order : {Order::kFifo, Order::kLifo, Order::kRandom}) {
    Report report;
    const auto out = c_.prefill(0, c_.rows(), emulated({.order = order}, &report));
    ASSERT_TRUE(report.ok()) << report.text();
    EXPECT_EQ(c_.wrong(out, AttentionCase::kPrefillRounding), "");
  }
}

TEST_P(AttentionPrefill, RowsAreTheSameBitsInEveryChunkAndTile) {
  Report report;
  const auto all = c_.prefill(0, c_.rows(), emulated({}, &report));
  for (const int32_t tile_rows : {5, 64}) {
    for (int32_t first = 0; first < c_.rows(); first += 33) {
      const int32_t end = std::min(first + 33, c_.rows());
      const auto some = c_.prefill(first, end, emulated({}, &report), tile_rows);
      ASSERT_TRUE(report.ok()) << report.text();
      EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin() + first * c_.out_columns()));
    }
  }
}

TEST(AttentionDecodeSites, AllMatter) {
  const AttentionCase c(3, 1, 80, {{21, 1}, {300, 1}});
  expect_every_site_matters([&](Options options, Report* report) {
    options.resident_blocks = 2;
    return c.decode(0, c.rows(), emulated(options, report), 1);
  });
}

TEST(AttentionPrefillSites, AllMatter) {
  const AttentionCase c(3, 1, 80, {{70, 70}, {5, 5}, {150, 10}});
  expect_every_site_matters([&](const Options& options, Report* report) {
    return c.prefill(0, c.rows(), emulated(options, report));
  });
}

// What is in shared memory lies so that no instruction waits for a bank twice.
TEST(AttentionAccesses, AreWithoutConflicts) {
  const AttentionCase c(4, 1, 128, {{70, 70}});
  for (const bool decode : {true, false}) {
    Report report;
    const auto launch = emulated({.count_accesses = true}, &report);
    if (decode) {
      c.decode(60, 70, launch);
    } else {
      c.prefill(0, 70, launch);
    }
    ASSERT_TRUE(report.ok()) << report.text();
    for (const emulator::AccessCount& count : report.accesses) {
      EXPECT_EQ(count.conflicts(), 0u) << count.text();
    }
  }
}

}  // namespace
}  // namespace deltad::cuda
