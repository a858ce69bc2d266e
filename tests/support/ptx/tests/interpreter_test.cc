// The interpreter runs what nvcc makes of small kernels; the host computes the same.
#include <gmock/gmock.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "tensor/float16.h"
#include "tests/support/ptx/minifloat.h"
#include "tests/support/ptx/tests/ptx_run.h"

namespace deltad::ptx {
namespace {

using testing::HasSubstr;

class Basic : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    module_ = load_test_kernels(GetParam(), "basic");
    ASSERT_NE(module_, nullptr);
  }
  template <typename T>
  void add(const std::string& name, std::vector<T>& v) {
    memory_.add(name, std::span(v));
  }
  template <typename... T>
  Outcome run(const std::string& kernel, Dim3 grid, Dim3 block, uint32_t shared,
              const Options& options, const T&... args) {
    return module_->run(kernel, grid, block, shared, params(args...), memory_, options);
  }
  template <typename... T>
  void run_well(const std::string& kernel, Dim3 grid, Dim3 block, uint32_t shared,
                const Options& options, const T&... args) {
    const Outcome o = run(kernel, grid, block, shared, options, args...);
    ASSERT_FALSE(o.fault) << message(o);
  }

  std::unique_ptr<Module> module_;
  Memory memory_;
  std::mt19937 random_{7};
};
INSTANTIATE_TEST_SUITE_P(Architecture, Basic, testing::ValuesIn(kArchitectures));

TEST_P(Basic, AddsVectorsWithinBounds) {
  std::vector<float> a(100), b(100), out(100, -1);
  for (float& x : a) x = static_cast<float>(random_() % 1000) * 0.37F;
  for (float& x : b) x = static_cast<float>(random_() % 1000) * 1.7F;
  add("a", a), add("b", b), add("out", out);
  run_well("vector_add", {2, 1, 1}, {64, 1, 1}, 0, {}, a.data(), b.data(), out.data(), 100);
  for (size_t i = 0; i < 100; ++i) EXPECT_EQ(out[i], a[i] + b[i]);
}

TEST_P(Basic, AnAccessBeyondABufferIsAFault) {
  std::vector<float> a(100), b(100), out(99);
  add("a", a), add("b", b), add("out", out);
  const Outcome o =
      run("vector_add", {2, 1, 1}, {64, 1, 1}, 0, {}, a.data(), b.data(), out.data(), 100);
  ASSERT_TRUE(o.fault);
  EXPECT_THAT(o.fault->text(), HasSubstr("byte 396 of out (396 bytes)"));
  EXPECT_THAT(o.fault->instruction, HasSubstr("st.global"));
  EXPECT_GT(o.fault->line, 10);
  EXPECT_THAT(o.fault->source, HasSubstr("basic.cu:"));
  EXPECT_EQ(o.fault->thread, "block (1,0,0) thread (35,0,0)");
}

TEST_P(Basic, ABoundCheckThatAlwaysSaysTheSameIsNoticed) {
  std::vector<float> a(100, 1), b(100, 2), out(100);
  add("a", a), add("b", b), add("out", out);
  expect_mutations_caught(*module_, "vector_add", 2, [&](const Options& options, Outcome& o) {
    std::fill(out.begin(), out.end(), 0);
    o = run("vector_add", {2, 1, 1}, {64, 1, 1}, 0, options, a.data(), b.data(), out.data(), 100);
    if (o.fault) return o.fault->text();
    return std::string(out == std::vector<float>(100, 3) ? "" : "a sum is wrong");
  });
}

TEST_P(Basic, SumsABlockThroughShufflesAndSharedMemory) {
  std::vector<int32_t> in(3 * 128), out(3);
  for (int32_t& x : in) x = static_cast<int32_t>(random_());
  add("in", in), add("out", out);
  for (const Options& o : schedules()) {
    std::fill(out.begin(), out.end(), 0);
    run_well("block_sum", {3, 1, 1}, {128, 1, 1}, 0, o, in.data(), out.data());
    for (size_t b = 0; b < 3; ++b) {
      uint32_t sum = 0;
      for (size_t i = 0; i < 128; ++i) sum += static_cast<uint32_t>(in[128 * b + i]);
      EXPECT_EQ(static_cast<uint32_t>(out[b]), sum);
    }
  }
}

TEST_P(Basic, WithoutItsBarrierASumIsARace) {
  std::vector<int32_t> in(128, 1), out(1);
  add("in", in), add("out", out);
  const auto all = module_->mutations("block_sum");
  ASSERT_TRUE(all.ok()) << all.status().message();
  int barriers = 0;
  for (const Mutation& m : all.value()) {
    if (m.kind != Mutation::Kind::kSkip) continue;
    ++barriers;
    const Outcome o =
        run("block_sum", {1, 1, 1}, {128, 1, 1}, 0, {.mutation = m}, in.data(), out.data());
    EXPECT_THAT(message(o), HasSubstr("race")) << m.text;
  }
  EXPECT_EQ(barriers, 1);
}

TEST_P(Basic, ReversesThroughDynamicSharedMemory) {
  std::vector<uint64_t> data(2 * 96);
  for (uint64_t& x : data) x = uint64_t{random_()} << 32 | random_();
  add("data", data);
  for (const Options& o : schedules()) {
    const std::vector<uint64_t> before = data;
    run_well("reverse", {2, 1, 1}, {96, 1, 1}, 96 * 8, o, data.data());
    for (size_t i = 0; i < 192; ++i) EXPECT_EQ(data[i], before[i / 96 * 96 + 95 - i % 96]);
  }
  const Outcome o = run("reverse", {2, 1, 1}, {96, 1, 1}, 96 * 8 - 1, {}, data.data());
  EXPECT_THAT(message(o), HasSubstr("shared memory has 767 bytes"));
  EXPECT_THAT(message(o), HasSubstr("thread (95,0,0)"));
}

TEST_P(Basic, CountsWithAtomics) {
  std::vector<uint32_t> values(1000), bins(16), highest(1);
  std::vector<float> sum(1);
  std::vector<uint32_t> expected(16);
  for (uint32_t& v : values) v = random_() >> 2, ++expected[v % 16];
  add("values", values), add("bins", bins), add("highest", highest), add("sum", sum);
  run_well("count", {1, 1, 1}, {96, 1, 1}, 0, {.order = Order::kRandom}, values.data(), bins.data(),
           highest.data(), sum.data(), 1000U);
  EXPECT_EQ(bins, expected);
  EXPECT_EQ(highest[0], *std::max_element(values.begin(), values.end()));
  EXPECT_EQ(sum[0], 500);
}

// Of all halves the nearest, of two the even one.
uint32_t nearest_half(float x) {
  const double size = std::abs(double{x});
  uint32_t best = size >= 65520 ? 0x7c00 : 0;
  for (uint32_t h = 1; h < 0x7c00 && size < 65520; ++h) {
    const double now = std::abs(f16_to_f32(static_cast<uint16_t>(h)) - size);
    const double before = std::abs(f16_to_f32(static_cast<uint16_t>(best)) - size);
    if (now < before || (now == before && h % 2 == 0)) best = h;
  }
  return best | (std::signbit(x) ? 0x8000 : 0);
}

TEST_P(Basic, ConvertsFloats) {
  std::vector<float> in = {0,           -0.F,       1,         -1.5F,   65504,     65520,
                           1e-7F,       3e-8F,      6e-8F,     3.4e38F, -1e9F,     1e30F,
                           0x1p-24F,    0x1.8p-25F, 0.1F,      2.5F,    -2.5F,     1.00390625F,
                           1.01171875F, INFINITY,   -INFINITY, NAN,     0x1p-133F, 123456.7F};
  while (in.size() < 64) in.push_back(std::bit_cast<float>(static_cast<uint32_t>(random_())));
  std::vector<uint32_t> out(6 * 64);
  add("in", in), add("out", out);
  run_well("convert", {1, 1, 1}, {64, 1, 1}, 0, {}, in.data(), out.data());
  for (size_t i = 0; i < 64; ++i) {
    const float x = in[i];
    const uint32_t* o = out.data() + 6 * i;
    if (std::isnan(x)) {
      EXPECT_EQ(o[0], 0x7fffU);
      EXPECT_EQ(o[1], 0x7fffU);
      EXPECT_EQ(o[4], 0U);
      continue;
    }
    // bf16 by the integer formula, f16 by looking at all.
    const uint32_t b = std::bit_cast<uint32_t>(x);
    EXPECT_EQ(o[0], std::isinf(x) ? b >> 16 : (b + 0x7fff + (b >> 16 & 1)) >> 16) << x;
    const uint32_t half = nearest_half(x);
    EXPECT_EQ(o[1], half) << x;
    EXPECT_EQ(o[2], o[0] << 16);
    EXPECT_EQ(std::bit_cast<float>(o[3]), f16_to_f32(static_cast<uint16_t>(half))) << x;
    auto clamped = [](double v) {
      return static_cast<uint32_t>(static_cast<int32_t>(std::clamp(v, -2147483648., 2147483647.)));
    };
    EXPECT_EQ(o[4], clamped(std::trunc(double{x}))) << x;
    EXPECT_EQ(o[5], clamped(std::ceil(double{x}))) << x;
  }
}

TEST_P(Basic, FusesPairsOfBrainFloats) {
  std::vector<float> in(64);
  std::vector<uint32_t> other(32), out(32);
  for (float& x : in) x = static_cast<float>(random_() % 2000) * 0.01F - 10;
  for (uint32_t& o : other) {
    o = to_bf16(static_cast<float>(random_() % 777) * 0.03F) | to_bf16(-0.3) << 16;
  }
  add("in", in), add("other", other), add("out", out);
  run_well("pairs", {1, 1, 1}, {32, 1, 1}, 0, {}, in.data(), other.data(), out.data());
  for (size_t i = 0; i < 32; ++i) {
    for (uint32_t h = 0; h < 2; ++h) {
      const long double b = bf16_to_float(to_bf16(in[2 * i + h]));
      const long double c = bf16_to_float(other[i] >> (16 * h) & 0xffff);
      const long double exact = b * c + b;  // fits: 8 + 8 bits and 24 of exponents' distance
      EXPECT_EQ(out[i] >> (16 * h) & 0xffff, to_bf16(static_cast<double>(exact)));
    }
  }
}

TEST_P(Basic, LanesDivergeAndMeetAgain) {
  std::vector<uint32_t> in(64), out(64), steps(64);
  for (size_t i = 0; i < 64; ++i) {
    in[i] = 1 + random_() % 1000;
    for (uint64_t x = in[i]; x != 1; ++steps[i]) x = x % 2 == 0 ? x / 2 : 3 * x + 1;
  }
  add("in", in), add("out", out);
  for (const Options& o : schedules()) {
    run_well("diverge", {1, 1, 1}, {64, 1, 1}, 0, o, in.data(), out.data());
    for (size_t i = 0; i < 64; ++i) {
      uint32_t even = 0;
      for (size_t l = 0; l < 32; ++l) even += steps[i / 32 * 32 + l] % 2 == 0;
      EXPECT_EQ(out[i], steps[i] + 1000 * even);
    }
  }
}

TEST_P(Basic, KeepsArraysInLocalMemory) {
  std::vector<uint32_t> index(32), out(40);
  for (uint32_t& i : index) i = random_();
  add("index", index), add("out", out);
  run_well("local_array", {1, 1, 1}, {40, 1, 1}, 0, {}, index.data(), out.data());
  for (uint32_t t = 0; t < 40; ++t) {
    uint32_t a[32], sum = 0;
    for (uint32_t i = 0; i < 32; ++i) a[i] = i * i + t;
    for (uint32_t i = 0; i < 32; ++i) a[index[i] % 32] ^= a[(index[i] + t) % 32] << 1;
    for (const uint32_t x : a) sum = sum * 31 + x;
    EXPECT_EQ(out[t], sum);
  }
}

TEST_P(Basic, ComputesWithIntegers) {
  std::vector<int32_t> a(64), b(64);
  std::vector<int64_t> out(8 * 64);
  for (int32_t& x : a) x = static_cast<int32_t>(random_());
  for (int32_t& x : b) x = static_cast<int32_t>(random_() >> random_() % 30 | 1);
  b[3] = -7, a[4] = 0;
  add("a", a), add("b", b), add("out", out);
  run_well("integers", {1, 1, 1}, {64, 1, 1}, 0, {}, a.data(), b.data(), out.data());
  const uint32_t table[] = {0x80000001U, 7, 11, 13};
  for (size_t i = 0; i < 64; ++i) {
    const int32_t x = a[i], y = b[i];
    const auto ux = static_cast<uint32_t>(x), uy = static_cast<uint32_t>(y);
    const int64_t wide = int64_t{x} * y + 5;
    uint32_t reversed = 0, permuted = 0;
    for (int bit = 0; bit < 32; ++bit) reversed |= (ux >> bit & 1) << (31 - bit);
    const uint64_t both = uint64_t{uy} << 32 | ux;
    for (int byte = 0; byte < 4; ++byte) {
      permuted |= static_cast<uint32_t>(both >> 8 * (0x2461 >> 4 * byte & 7) & 255) << 8 * byte;
    }
    const auto high = static_cast<int32_t>((int64_t{x} * y) >> 32);
    const int64_t expected[] = {
        x / y,
        x % y,
        int64_t{ux / uy},
        wide / (int64_t{y} * 3),
        static_cast<int32_t>(static_cast<uint32_t>(high) + static_cast<uint32_t>(x >> (y & 7)) -
                             static_cast<uint32_t>(static_cast<int16_t>(x))),
        int64_t{reversed + static_cast<uint32_t>(std::countl_zero(uy)) + table[i % 4]},
        int64_t{permuted},
        static_cast<int64_t>(static_cast<uint64_t>(
            (static_cast<unsigned __int128>(static_cast<uint64_t>(wide)) * 0x123456789abcdefULL) >>
            64)) +
            x / 7};
    for (size_t e = 0; e < 8; ++e)
      EXPECT_EQ(out[8 * i + e], expected[e]) << x << " " << y << " " << e;
  }
}

TEST_P(Basic, RoundsAsTheHostDoes) {
  std::vector<float> in(64), out(4 * 64);
  for (float& x : in) x = static_cast<float>(random_()) * 0x1.3p-28F;
  add("in", in), add("out", out);
  run_well("roots", {1, 1, 1}, {64, 1, 1}, 0, {}, in.data(), out.data());
  for (size_t i = 0; i < 64; ++i) {
    const float x = in[i];
    EXPECT_EQ(out[4 * i], std::sqrt(x));
    EXPECT_EQ(out[4 * i + 1], 1.0F / x);
    EXPECT_EQ(out[4 * i + 2], std::fma(x, x, -1.0F) / (x + 3.0F));
    const float sum = std::fmin(x, 2.0F) + std::fmax(std::floor(x), std::rint(x));
    EXPECT_EQ(out[4 * i + 3], sum + std::trunc(x * 0.3F));
  }
}

TEST_P(Basic, WrongLaunchesAreFaults) {
  std::vector<uint64_t> data(8);
  add("data", data);
  EXPECT_THAT(message(run("reverse", {}, {2048, 1, 1}, 0, {}, data.data())),
              HasSubstr("2048 threads"));
  EXPECT_THAT(message(run("reverse", {}, {8, 1, 1}, 0, {}, data.data(), 1)),
              HasSubstr("parameters of 12 bytes"));
  EXPECT_THAT(message(run("none", {}, {8, 1, 1}, 0, {}, data.data())), HasSubstr("no kernel none"));
}

}  // namespace
}  // namespace deltad::ptx
