// Tensor-core instructions and cp.async, against the host. Values are small whole numbers, so that
// sums are exact in any order.
#include <gmock/gmock.h>

#include <bit>
#include <random>
#include <vector>

#include "tests/support/ptx/minifloat.h"
#include "tests/support/ptx/tests/ptx_run.h"

namespace deltad::ptx {
namespace {

using testing::HasSubstr;

class Matrix : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    module_ = load_test_kernels(GetParam(), "matrix");
    ASSERT_NE(module_, nullptr);
  }
  template <typename T>
  void add(const std::string& name, std::vector<T>& v) {
    memory_.add(name, std::span(v));
  }
  std::unique_ptr<Module> module_;
  Memory memory_;
  std::mt19937 random_{7};
};
INSTANTIATE_TEST_SUITE_P(Architecture, Matrix, testing::ValuesIn(kArchitectures));

TEST_P(Matrix, MultipliesSixteenBitFloats) {
  std::vector<uint16_t> a(256), b(128);
  std::vector<float> c(128), va(256), vb(128);
  add("a", a), add("b", b), add("c", c);
  for (const bool half : {false, true}) {
    auto fill = [&](std::vector<uint16_t>& bits, std::vector<float>& values) {
      for (size_t i = 0; i < bits.size(); ++i) {
        values[i] = static_cast<float>(random_() % 41) - 20;
        bits[i] = static_cast<uint16_t>(half ? to_f16(values[i]) : to_bf16(values[i]));
      }
    };
    fill(a, va), fill(b, vb);
    const Outcome o = module_->run(half ? "product_f16" : "product_bf16", {}, {32, 1, 1}, 0,
                                   params(a.data(), b.data(), c.data()), memory_);
    ASSERT_FALSE(o.fault) << message(o);
    for (size_t r = 0; r < 16; ++r) {
      for (size_t n = 0; n < 8; ++n) {
        float sum = 0;
        for (size_t k = 0; k < 16; ++k) sum += va[16 * r + k] * vb[8 * k + n];
        EXPECT_EQ(c[8 * r + n], sum) << r << " " << n;
      }
    }
  }
}

TEST_P(Matrix, MultipliesBits) {
  std::vector<uint32_t> a(128), b(64);
  std::vector<int32_t> c(128, 5);
  for (uint32_t& x : a) x = random_();
  for (uint32_t& x : b) x = random_();
  add("a", a), add("b", b), add("c", c);
  std::vector<int32_t> expected(128, 5);
  for (const bool exclusive : {false, true}) {
    const Outcome o = module_->run(exclusive ? "bits_xor" : "bits_and", {}, {32, 1, 1}, 0,
                                   params(a.data(), b.data(), c.data()), memory_);
    ASSERT_FALSE(o.fault) << message(o);
    for (size_t i = 0; i < 128; ++i) {
      for (size_t k = 0; k < 8; ++k) {
        const uint32_t x = a[i / 8 * 8 + k], y = b[i % 8 * 8 + k];
        expected[i] += std::popcount(exclusive ? x ^ y : x & y);
      }
    }
    EXPECT_EQ(c, expected);
  }
}

TEST_P(Matrix, AnInstructionOfTheWholeWarpNeedsAllLanes) {
  std::vector<uint16_t> a(256), b(128);
  std::vector<float> c(128);
  add("a", a), add("b", b), add("c", c);
  const Outcome o = module_->run("product_bf16", {}, {31, 1, 1}, 0,
                                 params(a.data(), b.data(), c.data()), memory_);
  EXPECT_THAT(message(o), HasSubstr("needs all 32 lanes"));
  EXPECT_THAT(message(o), HasSubstr("ldmatrix"));
}

class StagedSum : public Matrix {
 protected:
  // Whether the kernel's result is right, for every order.
  std::string run(const Options& options, Outcome& o) {
    std::vector<float> in(kRows * kColumns), out(256);
    for (float& x : in) x = static_cast<float>(random_() % 100);
    Memory memory;
    memory.add("in", std::span<const float>(in));
    memory.add("out", std::span(out));
    o = module_->run("staged_sum", {}, {64, 1, 1}, 0,
                     params(in.data(), out.data(), kRows, kColumns), memory, options);
    if (o.fault) return o.fault->text();
    for (size_t c = 0; c < 256; ++c) {
      float sum = 0;
      for (size_t r = 0; r < kRows && c < kColumns; ++r) sum += in[r * kColumns + c];
      if (!(out[c] == sum)) return "column " + std::to_string(c) + " is wrong";
    }
    return "";
  }
  static constexpr uint32_t kRows = 7, kColumns = 204;
};
INSTANTIATE_TEST_SUITE_P(Architecture, StagedSum, testing::ValuesIn(kArchitectures));

TEST_P(StagedSum, CopiesArriveWhenTheKernelWaits) {
  Outcome out;
  for (const Options& o : schedules()) EXPECT_EQ(run(o, out), "");
}

TEST_P(StagedSum, EveryBarrierWaitAndBoundIsNeeded) {
  expect_mutations_caught(*module_, "staged_sum", 3,
                          [&](const Options& o, Outcome& out) { return run(o, out); });
}

}  // namespace
}  // namespace deltad::ptx
