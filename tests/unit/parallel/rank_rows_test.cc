#include "parallel/rank_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace deltad {
namespace {

int64_t bytes_of(int64_t columns, int bits) { return (columns * bits + 7) / 8; }

bool bit(const std::vector<uint8_t>& rows, int64_t row, int64_t row_bytes, int64_t i) {
  return (rows[static_cast<size_t>(row * row_bytes + i / 8)] >> (i % 8) & 1) != 0;
}

// Puts a tensor in blocks of random size and order, and compares what arrives, bit by bit.
void check(std::mt19937& random, int64_t rows, int64_t columns, int bits,
           const TensorShard& shard) {
  SCOPED_TRACE(::testing::Message()
               << rows << "x" << columns << ", rows " << shard.rows.begin << "-" << shard.rows.end
               << ", columns " << shard.columns.begin << "-" << shard.columns.end);
  const int64_t whole = bytes_of(columns, bits), own = bytes_of(shard.columns.size(), bits);
  std::vector<uint8_t> tensor(static_cast<size_t>(rows * whole));
  for (uint8_t& b : tensor) b = static_cast<uint8_t>(random());
  if (columns * bits % 8 != 0)  // padding is 0
    for (int64_t r = 1; r <= rows; ++r)
      tensor[static_cast<size_t>(r * whole - 1)] &=
          static_cast<uint8_t>((1 << (columns * bits % 8)) - 1);
  std::vector<uint8_t> out(static_cast<size_t>(shard.rows.size() * own));
  std::vector<int> came(static_cast<size_t>(shard.rows.size()));
  RankRows ranks;
  std::vector<int64_t> starts;
  for (int64_t at = 0; at < rows; at += 16 * (1 + static_cast<int64_t>(random() % 4)))
    starts.push_back(at);
  std::vector<size_t> order(starts.size());
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);
  for (const size_t i : order) {
    const int64_t first = starts[i], end = i + 1 < starts.size() ? starts[i + 1] : rows;
    const Status status =
        ranks.put(3, shard, columns, bits, first, end - first, tensor.data() + first * whole,
                  [&](int64_t at, int64_t count, const uint8_t* data) -> Status {
                    EXPECT_EQ(at % 16, 0);
                    EXPECT_TRUE(count % 16 == 0 || at + count == shard.rows.size());
                    std::copy_n(data, count * own, out.begin() + at * own);
                    for (int64_t r = at; r < at + count; ++r) ++came[static_cast<size_t>(r)];
                    return {};
                  });
    ASSERT_TRUE(status.ok());
  }
  for (int64_t r = 0; r < shard.rows.size(); ++r) {
    ASSERT_EQ(came[static_cast<size_t>(r)], 1) << "row " << r;
    for (int64_t i = 0; i < own * 8; ++i) {
      const bool expected =
          i < shard.columns.size() * bits &&  // padding is 0
          bit(tensor, shard.rows.begin + r, whole, shard.columns.begin * bits + i);
      ASSERT_EQ(bit(out, r, own, i), expected) << "row " << r << " bit " << i;
    }
  }
}

TEST(RankRows, GivesEachRankItsOwnRowsAndColumns) {
  std::mt19937 random(11);
  for (int i = 0; i < 400; ++i) {
    const auto rows = static_cast<int64_t>(random() % 150 + 1);
    const auto columns = static_cast<int64_t>(random() % 70 + 1);
    const auto range = [&](int64_t n, int64_t unit) {
      const int64_t a = static_cast<int64_t>(random()) % n / unit * unit;
      return Range{a, a + 1 + static_cast<int64_t>(random()) % (n - a)};
    };
    const int64_t unit = i % 3 == 0 ? 8 : 1;
    const TensorShard shards[] = {{range(rows, unit), {0, columns}},
                                  {{0, rows}, range(columns, unit)},
                                  {range(rows, unit), range(columns, unit)}};
    check(random, rows, columns, i % 2 == 0 ? 1 : 16, shards[i % 3]);
  }
}

TEST(RankRows, PassesErrorsOn) {
  RankRows ranks;
  const std::vector<uint8_t> rows(64);
  const Status status = ranks.put(
      0, {{0, 32}, {0, 16}}, 16, 1, 0, 32, rows.data(),
      [](int64_t, int64_t, const uint8_t*) -> Status { return resource_exhausted("no room"); });
  EXPECT_EQ(status.message(), "no room");
}

}  // namespace
}  // namespace deltad
