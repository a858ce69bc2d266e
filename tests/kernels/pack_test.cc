// The resident layout: every element of awkward shapes is found where kernels/cpu/layout.h says.
#include "kernels/cpu/pack.h"

#include <gtest/gtest.h>

#include <vector>

#include "kernels/cpu/layout.h"

namespace deltad::cpu {
namespace {

constexpr int64_t kColumns[] = {1, 2, 3, 4, 7, 8, 9, 24, 72, 100, 127, 128, 130, 145, 576};
constexpr int64_t kRows[] = {1, 3, 15, 16};

TEST(PackTest, PutsBaseValuesInPairsOfColumns) {
  for (const int64_t columns : kColumns)
    for (const int64_t rows : kRows) {
      const int64_t k = padded_columns(columns);
      std::vector<uint16_t> values(static_cast<size_t>(rows * columns));
      for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<uint16_t>(i * 7 + 1);
      std::vector<uint16_t> tile(static_cast<size_t>(base_elements(rows, columns)), 0);
      pack_base_tile(tile.data(), values.data(), rows, columns);
      for (int64_t o = 0; o < kTileRows; ++o)
        for (int64_t c = 0; c < k; ++c) {
          const bool inside = o < rows && c < columns;
          const uint16_t expected = inside ? values[static_cast<size_t>(o * columns + c)] : 0;
          ASSERT_EQ(tile[static_cast<size_t>(base_index(o, c, k))], expected)
              << rows << "x" << columns << " at " << o << "," << c;
        }
    }
}

TEST(PackTest, PutsSignsOfFourColumnsInAWord) {
  for (const int64_t columns : kColumns)
    for (const int64_t rows : kRows) {
      const int64_t row_bytes = (columns + 7) / 8;
      std::vector<uint8_t> bits(static_cast<size_t>(rows * row_bytes));
      for (size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<uint8_t>(i * 151 + 77);
      std::vector<uint64_t> tile(static_cast<size_t>(sign_words(rows, columns)), 0);
      pack_sign_tile(tile.data(), bits.data(), rows, columns);
      for (int64_t o = 0; o < kTileRows; ++o)
        for (int64_t c = 0; c < padded_columns(columns); ++c) {
          const bool inside = o < rows && c < columns;  // set padding bits of the file are dropped
          const int expected =
              inside ? bits[static_cast<size_t>(o * row_bytes + c / 8)] >> (c % 8) & 1 : 0;
          const auto word = tile[static_cast<size_t>(c / 4)];
          ASSERT_EQ(static_cast<int>(word >> (o * 4 + c % 4) & 1), expected)
              << rows << "x" << columns << " at " << o << "," << c;
        }
    }
}

TEST(PackTest, LeavesTheRowsOfOthersAlone) {
  std::vector<uint64_t> tile(2, ~uint64_t{0});
  const std::vector<uint8_t> none(3, 0);
  pack_sign_tile(tile.data(), none.data(), 3, 8);
  EXPECT_EQ(tile[0], ~uint64_t{0xfff});
  EXPECT_EQ(tile[1], ~uint64_t{0xfff});
}

}  // namespace
}  // namespace deltad::cpu
