// Resident weights: fused, interleaved, padded and aliased ones; sign levels and dense replacements
// of variants; loading by several threads; errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <thread>
#include <vector>

#include "backend/cpu/cpu_variant_weights.h"
#include "kernels/cpu/layout.h"
#include "tensor/float16.h"

namespace deltad {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kColumns = 20;

size_t whole_pages(size_t bytes) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

std::unique_ptr<CpuVariantWeights> variant_of(const CpuWeights& base,
                                              const VariantContent& content) {
  auto made = CpuVariantWeights::make(base, content);
  CHECK(made.ok(), made.status().message().c_str());
  EXPECT_EQ(*CpuVariantWeights::bytes_of(base, content), (*made)->bytes());
  return std::move(*made);
}

std::vector<uint16_t> counting(int64_t rows, int64_t columns, uint16_t from) {
  std::vector<uint16_t> v(static_cast<size_t>(rows * columns));
  for (size_t i = 0; i < v.size(); ++i) v[i] = static_cast<uint16_t>(from + i);
  return v;
}

uint16_t value_at(const CpuMatrix& m, int64_t row, int64_t column) {
  return m.storage.as<uint16_t>()[cpu::base_index(row, column, m.padded_columns)];
}

bool sign_at(const CpuSignLevel& level, int64_t row, int64_t column) {
  const int64_t words = cpu::padded_columns(kColumns) / 4;
  const uint64_t word = level.bits.as<uint64_t>()[row / 16 * words + column / 4];
  return word >> (row % 16 * 4 + column % 4) & 1;
}

// 0: embedding [50], 1: head that stands for it, 2: fused [17, 3, 20], 3: interleaved [18, 18],
// 4: vector [5].
CpuWeights declared() {
  CpuWeights w;
  EXPECT_TRUE(
      w.declare({{WeightKind::kEmbedding, {{"embed", 50}}, kColumns, false, -1},
                 {WeightKind::kMatrix, {{"head", 50}}, kColumns, false, 0},
                 {WeightKind::kMatrix, {{"q", 17}, {"k", 3}, {"v", 20}}, kColumns, false, -1},
                 {WeightKind::kMatrix, {{"gate", 18}, {"up", 18}}, kColumns, true, -1},
                 {WeightKind::kVector, {{"norm", 5}}, 1, false, -1}})
          .ok());
  return w;
}

TEST(CpuWeightsTest, PlacesFusedParts) {
  CpuWeights w = declared();
  const int64_t rows[] = {17, 3, 20}, offset[] = {0, 32, 48};
  for (int p = 0; p < 3; ++p) {
    const auto values = counting(rows[p], kColumns, static_cast<uint16_t>(1000 * (p + 1)));
    ASSERT_TRUE(w.put_rows(2, p, 0, rows[p], values.data()).ok());
  }
  const CpuMatrix& m = w.matrix(2);
  EXPECT_EQ(m.rows, 68);
  EXPECT_EQ(m.padded_rows, 80);
  for (int p = 0; p < 3; ++p)
    for (int64_t r = 0; r < 32 && offset[p] + r < m.padded_rows; ++r) {
      if (p == 1 && r >= 16) break;
      const uint16_t expected =
          r < rows[p] ? static_cast<uint16_t>(1000 * (p + 1) + r * kColumns + 19) : 0;
      EXPECT_EQ(value_at(m, offset[p] + r, 19), expected) << p << " " << r;
    }
  EXPECT_EQ(m.storage.bytes(), static_cast<size_t>(80 * kColumns * 2));
}

TEST(CpuWeightsTest, InterleavesTilesOfTwoParts) {
  CpuWeights w = declared();
  for (int p = 0; p < 2; ++p) {
    const auto values = counting(18, kColumns, static_cast<uint16_t>(5000 * (p + 1)));
    ASSERT_TRUE(w.put_rows(3, p, 0, 16, values.data()).ok());
    ASSERT_TRUE(w.put_rows(3, p, 16, 2, values.data() + 16 * kColumns).ok());
  }
  const CpuMatrix& m = w.matrix(3);
  EXPECT_EQ(m.padded_rows, 64);
  EXPECT_EQ(value_at(m, 3, 2), 5000 + 3 * kColumns + 2);
  EXPECT_EQ(value_at(m, 16 + 3, 2), 10000 + 3 * kColumns + 2);
  EXPECT_EQ(value_at(m, 32 + 1, 2), 5000 + 17 * kColumns + 2);
  EXPECT_EQ(value_at(m, 48 + 1, 2), 10000 + 17 * kColumns + 2);
  EXPECT_EQ(value_at(m, 32 + 2, 2), 0);
}

TEST(CpuWeightsTest, KeepsNoCopyOfAnAliasAndWidensVectors) {
  CpuWeights w = declared();
  const auto values = counting(50, kColumns, 7);
  ASSERT_TRUE(w.put_rows(0, 0, 0, 50, values.data()).ok());
  EXPECT_EQ(&w.matrix(1), &w.matrix(0));
  EXPECT_THAT(w.put_rows(1, 0, 0, 50, values.data()).message(), HasSubstr("head"));
  const uint16_t norm[] = {f32_to_bf16(1.0f), f32_to_bf16(-2.0f), f32_to_bf16(0.5f)};
  ASSERT_TRUE(w.put_rows(4, 0, 1, 3, norm).ok());
  EXPECT_EQ(w.matrix(4).storage.as<float>()[2], -2.0f);
  // One arena, in the order of the specs, to the page.
  EXPECT_EQ(w.matrix(2).storage.as<char>() - w.matrix(0).storage.as<char>(), 64 * kColumns * 2);
  EXPECT_EQ(w.matrix(3).storage.as<char>() - w.matrix(2).storage.as<char>(), 80 * kColumns * 2);
  EXPECT_EQ(w.bytes(), whole_pages((64 + 80 + 64) * kColumns * 2 + 16 * 4));
}

TEST(CpuWeightsTest, RefusesWrongPlaces) {
  CpuWeights w = declared();
  const std::vector<uint16_t> values(64 * kColumns);
  EXPECT_FALSE(w.put_rows(9, 0, 0, 1, values.data()).ok());
  EXPECT_FALSE(w.put_rows(2, 3, 0, 1, values.data()).ok());
  EXPECT_THAT(w.put_rows(2, 0, 16, 2, values.data()).message(), HasSubstr("17 rows"));
  EXPECT_THAT(w.put_rows(2, 0, 8, 2, values.data()).message(), HasSubstr("multiple of 16"));
  EXPECT_FALSE(w.put_rows(2, 0, -16, 2, values.data()).ok());
  EXPECT_FALSE(w.declare({}).ok());
}

TEST(CpuVariantWeightsTest, HoldsSignLevelsOfSomeParts) {
  const CpuWeights w = declared();
  const auto v = variant_of(w, {{{2, 2}}, {}});
  std::vector<uint8_t> bits(20 * 3, 0);
  for (size_t r = 0; r < 20; ++r) bits[r * 3 + r % 3] = 1;  // column 8·(r % 3)
  std::vector<float> alpha(20);
  for (size_t r = 0; r < 20; ++r) alpha[r] = static_cast<float>(r + 1);
  ASSERT_TRUE(v->put_sign_rows(2, 2, 1, 0, 20, bits.data()).ok());
  ASSERT_TRUE(v->put_alpha(2, 2, 1, alpha.data()).ok());
  ASSERT_TRUE(v->finish().ok());
  const CpuWeightDelta& d = v->delta(2);
  ASSERT_EQ(d.levels.size(), 2u);
  for (int64_t r = 0; r < 80; ++r) {
    EXPECT_EQ(d.levels[0].alpha.as<float>()[r], 0.0f);
    const bool inside = r >= 48 && r < 68;
    EXPECT_EQ(d.levels[1].alpha.as<float>()[r], inside ? static_cast<float>(r - 47) : 0.0f);
    for (int64_t c = 0; c < kColumns; ++c)
      EXPECT_EQ(sign_at(d.levels[1], r, c), inside && c == 8 * ((r - 48) % 3)) << r << "," << c;
  }
  EXPECT_TRUE(v->delta(3).nothing());
  EXPECT_EQ(v->bytes(), whole_pages(2 * (80 / 16 * (kColumns / 4) * 8 + 80 * sizeof(float))));
  EXPECT_THAT(v->put_sign_rows(2, 0, 2, 0, 1, bits.data()).message(), HasSubstr("2 levels"));
  EXPECT_THAT(v->put_sign_rows(3, 0, 0, 0, 1, bits.data()).message(), HasSubstr("0 levels"));
}

TEST(CpuVariantWeightsTest, LiesInTheOrderInWhichItIsRead) {
  const CpuWeights w = declared();
  const auto v = variant_of(w, {{{3, 1}, {2, 2}}, {{4, 0, 5}, {2, 0, 17}, {0, 0, 50}}});
  const CpuWeightDelta &two = v->delta(2), &three = v->delta(3);
  const char* order[] = {v->delta(0).dense->storage.as<char>(), two.levels[0].alpha.as<char>(),
                         two.levels[0].bits.as<char>(),         two.levels[1].alpha.as<char>(),
                         two.levels[1].bits.as<char>(),         two.dense->storage.as<char>(),
                         three.levels[0].alpha.as<char>(),      three.levels[0].bits.as<char>(),
                         v->delta(4).dense->storage.as<char>()};
  for (size_t i = 0; i < std::size(order); ++i) {
    EXPECT_EQ((order[i] - order[0]) % 64, 0) << i;
    EXPECT_TRUE(i == 0 || order[i] > order[i - 1]) << i;
  }
  EXPECT_EQ(order[2] - order[1], 80 * static_cast<int64_t>(sizeof(float)));  // side by side
}

// What nobody wrote to as well: no use of a finished variant waits for the system.
TEST(CpuVariantWeightsTest, IsResidentOnceFinished) {
  CpuWeights w;
  ASSERT_TRUE(w.declare({{WeightKind::kMatrix, {{"m", 65536}}, 1024, false, -1}}).ok());
  const auto v = variant_of(w, {{{0, 1}}, {}});
  const CpuSignLevel& level = v->delta(0).levels[0];
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> pages(v->bytes() / page);
  const auto resident = [&] {
    EXPECT_EQ(mincore(level.alpha.data(), v->bytes(), pages.data()), 0);
    size_t count = 0;
    for (const unsigned char p : pages) count += p & 1;
    return count;
  };
  EXPECT_EQ(resident(), 0u);
  ASSERT_TRUE(v->finish().ok());
  EXPECT_EQ(resident(), pages.size());
}

TEST(CpuVariantWeightsTest, RefusesContentThatTheBaseHasNoPlaceFor) {
  const CpuWeights w = declared();
  const auto refused = [&](const VariantContent& content) {
    EXPECT_FALSE(CpuVariantWeights::bytes_of(w, content).ok());
    const auto made = CpuVariantWeights::make(w, content);
    EXPECT_EQ(made.status().code(), Code::kInvalidArgument);
    return made.status().message();
  };
  EXPECT_THAT(refused({{{0, 1}}, {}}), HasSubstr("no matrix"));
  EXPECT_THAT(refused({{{2, kMaxLevels + 1}}, {}}), HasSubstr("expected 1 to 4"));
  EXPECT_THAT(refused({{{2, 1}, {2, 1}}, {}}), HasSubstr("twice"));
  EXPECT_THAT(refused({{{5, 1}}, {}}), HasSubstr("weight 5"));
  EXPECT_THAT(refused({{}, {{2, 3, 1}}}), HasSubstr("no part 3"));
  EXPECT_THAT(refused({{}, {{2, 1, 4}}}), HasSubstr("expected 3"));  // a fused part keeps its rows
  EXPECT_THAT(refused({{}, {{0, 0, 67}, {0, 0, 67}}}), HasSubstr("twice"));
}

TEST(CpuVariantWeightsTest, ReplacesAPartAndKeepsTheOthers) {
  CpuWeights w = declared();
  const auto base = counting(20, kColumns, 1);
  ASSERT_TRUE(w.put_rows(2, 2, 0, 20, base.data()).ok());
  const auto v = variant_of(w, {{}, {{2, 1, 3}}});
  EXPECT_FALSE(v->put_dense_rows(3, 1, 0, 3, base.data()).ok());
  const auto own = counting(3, kColumns, 9000);
  ASSERT_TRUE(v->put_dense_rows(2, 1, 0, 3, own.data()).ok());
  ASSERT_TRUE(v->finish().ok());
  const CpuMatrix& m = *v->delta(2).dense;
  EXPECT_EQ(value_at(m, 32 + 1, 5), 9000 + kColumns + 5);
  EXPECT_EQ(value_at(m, 48 + 1, 5), 1 + kColumns + 5);
  EXPECT_EQ(value_at(w.matrix(2), 32 + 1, 5), 0);
}

TEST(CpuVariantWeightsTest, LetsATiedHeadFollowLargerEmbeddings) {
  const CpuWeights w = declared();
  const auto v = variant_of(w, {{}, {{0, 0, 67}}});
  v->alias_weight(1, 0);  // in any order
  const auto values = counting(67, kColumns, 3);
  ASSERT_TRUE(v->put_dense_rows(0, 0, 0, 67, values.data()).ok());
  ASSERT_TRUE(v->finish().ok());
  EXPECT_EQ(v->delta(1).dense, v->delta(0).dense);
  EXPECT_EQ(v->dense_rows(1), 67);
  EXPECT_EQ(v->dense_rows(2), 0);
  EXPECT_EQ(v->bytes(), whole_pages(80 * kColumns * 2));
  EXPECT_EQ(value_at(*v->delta(1).dense, 66, 3), 3 + 66 * kColumns + 3);
}

TEST(CpuVariantWeightsTest, IsFilledBySeveralThreads) {
  CpuWeights w;
  ASSERT_TRUE(w.declare({{WeightKind::kMatrix, {{"m", 256}}, kColumns, false, -1}}).ok());
  const auto v = variant_of(w, {{{0, 3}}, {}});
  const auto values = counting(256, kColumns, 0);
  const std::vector<uint8_t> bits(256 * 3, 0x05);
  std::vector<std::thread> team;
  for (int64_t t = 0; t < 4; ++t)
    team.emplace_back([&, t] {
      for (int64_t first = t * 16; first < 256; first += 64) {
        EXPECT_TRUE(w.put_rows(0, 0, first, 16, values.data() + first * kColumns).ok());
        for (int level = 0; level < 3; ++level)
          EXPECT_TRUE(v->put_sign_rows(0, 0, level, first, 16, bits.data() + first * 3).ok());
      }
    });
  for (std::thread& thread : team) thread.join();
  ASSERT_EQ(v->delta(0).levels.size(), 3u);
  for (int64_t r = 0; r < 256; ++r) {
    EXPECT_EQ(value_at(w.matrix(0), r, 7), static_cast<uint16_t>(r * kColumns + 7));
    for (const CpuSignLevel& level : v->delta(0).levels) {
      EXPECT_TRUE(sign_at(level, r, 2));
      EXPECT_FALSE(sign_at(level, r, 1));
    }
  }
}

}  // namespace
}  // namespace deltad
