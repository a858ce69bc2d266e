// The small parts that compression is made of: sign rows, float types, digests, work lists.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "delta/digest.h"
#include "delta/float_codec.h"
#include "delta/sign_rows.h"
#include "delta/work_list.h"
#include "tensor/float16.h"

namespace deltad {
namespace {

TEST(SignRows, ZeroIsPlusAndPaddingIsZero) {
  const std::vector<double> x = {1, -1, 0.0, -0.0, -2, 3, -4, 5, -1, 1, -1};
  std::vector<uint8_t> bits(2, 0xff);
  pack_signs(x.data(), 11, bits.data());
  EXPECT_EQ(bits[0], 0b10101101);
  EXPECT_EQ(bits[1], 0b00000010);
  std::vector<double> sum(11, 10.0);
  add_signs(bits.data(), 11, 0.5, sum.data());
  for (size_t i = 0; i < 11; ++i) EXPECT_EQ(sum[i], x[i] >= 0 ? 10.5 : 9.5);
  std::vector<double> rest = x;
  subtract_signs(rest.data(), 11, 0.5);
  for (size_t i = 0; i < 11; ++i) EXPECT_EQ(rest[i], x[i] - (x[i] >= 0 ? 0.5 : -0.5));
  EXPECT_EQ(count_zeros(x.data(), 11), 2);
}

TEST(SignRows, SumsOfEveryLength) {
  std::vector<double> x;
  double absolute = 0, squares = 0;
  for (int n = 0; n < 40; ++n) {
    const RowSums sums = row_sums(x.data(), n);
    EXPECT_NEAR(sums.absolute, absolute, 1e-12);
    EXPECT_NEAR(sums.squares, squares, 1e-9);
    x.push_back(n % 3 == 0 ? -n : n + 0.25);
    absolute += std::fabs(x.back());
    squares += x.back() * x.back();
  }
}

TEST(FloatCodec, EveryHalfSurvives) {
  for (uint32_t h = 0; h < 65536; ++h) {
    const auto half = static_cast<uint16_t>(h);
    float wide = 0;
    uint16_t back = 0;
    widen(DType::kF16, 1, &half, &wide);
    if (std::isnan(wide)) continue;
    narrow(DType::kF16, 1, &wide, &back);
    ASSERT_EQ(back, half);
    widen(DType::kBF16, 1, &half, &wide);
    if (std::isnan(wide)) continue;
    narrow(DType::kBF16, 1, &wide, &back);
    ASSERT_EQ(back, half);
  }
}

TEST(FloatCodec, Fp64ToBf16RoundsOnce) {
  // Just above the middle between two bf16 values: fp32 would round it to the middle first, and
  // then to even.
  const double middle = 1.0 + 0x1p-8;
  EXPECT_EQ(f64_to_bf16(middle), f32_to_bf16(1.0f));
  EXPECT_EQ(f64_to_bf16(middle + 0x1p-40), f32_to_bf16(1.0f + 0x1p-7f));
  EXPECT_EQ(f64_to_bf16(-middle - 0x1p-40), f32_to_bf16(-1.0f - 0x1p-7f));
  EXPECT_EQ(f64_to_bf16(middle - 0x1p-40), f32_to_bf16(1.0f));
  EXPECT_EQ(f64_to_bf16(0.0), 0);
  EXPECT_EQ(f64_to_bf16(-0.0), 0x8000);
  EXPECT_EQ(f64_to_bf16(1e300), 0x7f80);
  EXPECT_EQ(f64_to_bf16(0x1p-133), 1);
}

TEST(Digest, DoesNotDependOnThePieces) {
  const std::string data(9'000'001, 'x');
  const auto digest = [&](const std::vector<int64_t>& pieces) {
    TensorHasher hasher;
    int64_t at = 0;
    for (const int64_t piece : pieces) {
      hasher.update(data.data() + at, piece);
      at += piece;
    }
    hasher.update(data.data() + at, static_cast<int64_t>(data.size()) - at);
    return hasher.finish();
  };
  const std::vector<PartHash> whole = digest({});
  EXPECT_EQ(whole.size(), 3u);
  EXPECT_EQ(digest({1}), whole);
  EXPECT_EQ(digest({kDigestPartBytes}), whole);
  EXPECT_EQ(digest({kDigestPartBytes - 1, 2, 4'000'000}), whole);
  EXPECT_EQ(digest({0, 5'000'000}), whole);
}

TEST(Digest, DependsOnNameTypeAndShape) {
  const auto digest = [](const std::string& name, DType type, const Shape& shape) {
    TensorHasher hasher;
    hasher.update("abcdefgh", 8);
    std::map<std::string, HashedTensor> tensors;
    tensors.emplace(name, HashedTensor{type, shape, hasher.finish()});
    return variant_digest(tensors);
  };
  const std::string one = digest("a", DType::kU8, Shape{2, 4});
  EXPECT_EQ(one.size(), 32u);
  EXPECT_EQ(digest("a", DType::kU8, Shape{2, 4}), one);
  EXPECT_NE(digest("b", DType::kU8, Shape{2, 4}), one);
  EXPECT_NE(digest("a", DType::kI8, Shape{2, 4}), one);
  EXPECT_NE(digest("a", DType::kU8, Shape{4, 2}), one);
}

TEST(WorkList, DoesEachPieceOnce) {
  for (const int threads : {1, 2, 7}) {
    std::vector<std::atomic<int>> done(100);
    EXPECT_TRUE(run_work_list(100, threads, [&](int64_t i) -> Status {
                  ++done[static_cast<size_t>(i)];
                  return {};
                }).ok());
    for (const auto& times : done) EXPECT_EQ(times, 1);
  }
  EXPECT_TRUE(run_work_list(0, 4, [](int64_t) { return internal_error("no"); }).ok());
}

// Each share's pieces in their order, on threads that do no other share's.
TEST(WorkList, SharesHaveThreadsOfTheirOwn) {
  const std::vector<int64_t> bounds = {0, 10, 10, 35, 36};
  for (const int threads : {1, 4, 9}) {
    Mutex mutex;
    std::map<std::thread::id, std::vector<int64_t>> done;
    EXPECT_TRUE(run_work_shares(bounds, threads, [&](int64_t i) -> Status {
                  MutexLock lock(mutex);
                  done[std::this_thread::get_id()].push_back(i);
                  return {};
                }).ok());
    int64_t count = 0;
    for (const auto& [thread, pieces] : done) {
      const auto share = std::upper_bound(bounds.begin(), bounds.end(), pieces.front());
      EXPECT_LT(pieces.back(), *share);
      EXPECT_TRUE(std::is_sorted(pieces.begin(), pieces.end()));
      count += static_cast<int64_t>(pieces.size());
    }
    EXPECT_EQ(count, 36);
  }
}

TEST(WorkList, StopsAtTheFirstError) {
  std::atomic<int> done{0};
  const Status status = run_work_list(1000, 1, [&](int64_t i) {
    ++done;
    return i == 3 ? invalid_argument("three") : Status();
  });
  EXPECT_EQ(status.message(), "three");
  EXPECT_EQ(done, 4);
  EXPECT_EQ(
      run_work_list(5, 2, [](int64_t) -> Status { throw std::runtime_error("thrown"); }).message(),
      "thrown");
}

}  // namespace
}  // namespace deltad
