// mbarriers, bulk copies and wgmma, against the host.
#include <gmock/gmock.h>

#include <algorithm>
#include <random>
#include <vector>

#include "tests/support/ptx/minifloat.h"
#include "tests/support/ptx/tests/ptx_run.h"

namespace deltad::ptx {
namespace {

class Hopper : public testing::Test {
 protected:
  void SetUp() override {
    module_ = load_test_kernels("sm_90a", "hopper_sm_90a");
    ASSERT_NE(module_, nullptr);
  }
  // "" or what is wrong.
  std::string bulk_sum(const Options& options, Outcome& o);
  std::string product(const std::string& kernel, uint32_t mode, const Options& options, Outcome& o);

  std::unique_ptr<Module> module_;
  std::mt19937 random_{7};
};

std::string Hopper::bulk_sum(const Options& options, Outcome& o) {
  constexpr uint32_t kRows = 5, kBlocks = 2;
  std::vector<uint64_t> in(kBlocks * kRows * 128), out(kBlocks * 128);
  for (uint64_t& x : in) x = random_();
  Memory memory;
  memory.add("in", std::span<const uint64_t>(in));
  memory.add("out", std::span(out));
  o = module_->run("bulk_sum", {kBlocks, 1, 1}, {160, 1, 1}, 0,
                   params(in.data(), out.data(), kRows), memory, options);
  if (o.fault) return o.fault->text();
  for (size_t i = 0; i < out.size(); ++i) {
    uint64_t sum = 0;
    for (size_t r = 0; r < kRows; ++r) sum += in[(i / 128 * kRows + r) * 128 + i % 128];
    if (out[i] != sum) return "sum " + std::to_string(i) + " is wrong";
  }
  return "";
}

std::string Hopper::product(const std::string& kernel, uint32_t mode, const Options& options,
                            Outcome& o) {
  std::vector<float> va(64 * 32), vb(8 * 32), c(64 * 8);
  std::vector<uint16_t> a, b;
  for (float& x : va) x = static_cast<float>(random_() % 41) - 20;
  for (float& x : vb) x = static_cast<float>(random_() % 41) - 20;
  for (const float x : va) a.push_back(static_cast<uint16_t>(to_bf16(x)));
  for (const float x : vb) b.push_back(static_cast<uint16_t>(to_bf16(x)));
  Memory memory;
  memory.add("a", std::span<const uint16_t>(a));
  memory.add("b", std::span<const uint16_t>(b));
  memory.add("c", std::span(c));
  o = module_->run(kernel, {}, {128, 1, 1}, 0, params(a.data(), b.data(), c.data(), mode), memory,
                   options);
  if (o.fault) return o.fault->text();
  for (size_t i = 0; i < c.size(); ++i) {
    float sum = 0;
    for (size_t k = 0; k < 32; ++k) sum += va[i / 8 * 32 + k] * vb[i % 8 * 32 + k];
    if (!(c[i] == sum)) return "row " + std::to_string(i / 8) + " column " + std::to_string(i % 8);
  }
  return "";
}

TEST_F(Hopper, BulkCopiesArriveAtTheirMBarrier) {
  Outcome out;
  for (const Options& o : schedules()) EXPECT_EQ(bulk_sum(o, out), "");
}

TEST_F(Hopper, ABulkPipelineNeedsEachOfItsWaits) {
  expect_mutations_caught(*module_, "bulk_sum", 6,
                          [&](const Options& o, Outcome& out) { return bulk_sum(o, out); });
}

TEST_F(Hopper, MultipliesInWarpgroups) {
  Outcome out;
  for (const char* kernel : {"product_shared", "product_registers", "product_in_turn"}) {
    for (const uint32_t mode : {0U, 1U}) {
      for (const Options& o : schedules()) EXPECT_EQ(product(kernel, mode, o, out), "") << mode;
    }
  }
}

TEST_F(Hopper, AProductNeedsItsFencesAndWaits) {
  for (const char* kernel : {"product_shared", "product_registers"}) {
    expect_mutations_caught(*module_, kernel, 4, [&](const Options& o, Outcome& out) {
      return product(kernel, 1, o, out);
    });
  }
}

// The last wait alone would do for the sums; that in the loop keeps A's registers until they have
// been read.
TEST_F(Hopper, AProductReadsItsRegistersUntilTheWait) {
  const auto run = [&](const Options& o, Outcome& out) {
    return product("product_in_turn", 1, o, out);
  };
  const auto all = module_->mutations("product_in_turn");
  ASSERT_TRUE(all.ok()) << all.status().message();
  const auto in_loop = std::find_if(all->begin(), all->end(), [](const Mutation& m) {
    return m.text.find("wgmma.wait_group") != std::string::npos;
  });
  ASSERT_NE(in_loop, all->end());
  Options o = schedules()[0];
  Outcome out;
  ASSERT_EQ(run(o, out), "");
  o.mutation = *in_loop;
  EXPECT_NE(run(o, out), "") << in_loop->text;
}

}  // namespace
}  // namespace deltad::ptx
