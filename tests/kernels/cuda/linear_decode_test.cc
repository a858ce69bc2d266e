// The decode kernel on the emulator against the fp64 oracle, over awkward shapes.
#include "kernels/cuda/linear_decode.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "kernels/ref/linear.h"
#include "tests/kernels/cuda/decode_case.h"

namespace deltad::cuda {
namespace {

using emulator::Options;
using emulator::Order;

std::string place(int32_t row, int32_t output) {
  return "row " + std::to_string(row) + " output " + std::to_string(output);
}

int32_t slot_of(const std::vector<RowGroup>& groups, int32_t row) {
  for (const RowGroup& group : groups) {
    if (row < group.end_row) return group.slot;
  }
  return -1;
}

// Every output of every row within the bound that follows from the row's and the weight's norms.
void expect_oracle(const DecodeCase& c, const std::vector<float>& x,
                   const std::vector<RowGroup>& groups, const std::vector<float>& out) {
  const int32_t m = groups.back().end_row, outputs = c.shape().outputs();
  ASSERT_EQ(out.size(), static_cast<size_t>(m * outputs));
  for (int32_t row = 0; row < m; ++row) {
    const auto want = c.expected(x.data() + static_cast<ptrdiff_t>(row) * c.shape().columns,
                                 slot_of(groups, row));
    for (int32_t o = 0; o < outputs; ++o) {
      ASSERT_NEAR(out[static_cast<size_t>(row * outputs + o)], want.y[static_cast<size_t>(o)],
                  want.error[static_cast<size_t>(o)])
          << place(row, o);
    }
  }
}

struct Shape {
  const char* name;
  int32_t m;
  WeightShape weight;
  int32_t variants, levels;
  double alpha;
};
// Pairwise over rows, shapes, variants, levels and α: SmolLM2 (576, 1536), 8B (4096, 14336) and
// 70B (8192, 28672) in narrow slices, shards of them, columns that fill no tile.
const Shape kShapes[] = {
    {"smollm_o", 1, {{576}, 576}, 1, 1, 0.01},
    {"smollm_qkv", 14, {{576, 192, 192}, 576}, 14, 1, 0.01},
    {"smollm_down", 7, {{576}, 1536}, 3, 2, 1e-6},
    {"smollm_gate", 33, {{1536, 1536}, 576, true}, 2, 1, 1},
    {"shard_down", 16, {{64}, 1792}, 14, 2, 0.1},
    {"llama_down", 5, {{24}, 14336}, 2, 1, 1e-4},
    {"llama_q", 17, {{40}, 4096}, 4, 2, 0.01},
    {"large_down", 2, {{16}, 28672}, 1, 2, 0.01},
    {"large_q", 64, {{16}, 8192}, 5, 1, 0.001},
    {"ragged", 31, {{70, 10}, 300}, 6, 2, 0.01},
    {"narrow", 129, {{8}, 250}, 14, 1, 0.3},
    {"short", 3, {{100}, 9}, 2, 2, 1},
    {"base", 32, {{128}, 1000}, 0, 0, 0},
};

class LinearDecode : public testing::TestWithParam<Shape> {};
INSTANTIATE_TEST_SUITE_P(Shapes, LinearDecode, testing::ValuesIn(kShapes),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(LinearDecode, EqualsTheOracle) {
  const Shape& s = GetParam();
  DecodeCase c(s.weight);
  std::vector<int32_t> slots = {-1};
  for (int32_t v = 0; v < s.variants; ++v) {
    // Some variants have fewer levels than others, one none at all.
    slots.push_back(c.add_variant(v == 1 ? 0 : s.levels - v % 2 * (s.levels - 1), s.alpha, v == 2));
  }
  std::mt19937 random(3);
  const std::vector<float> x = c.random_rows(s.m);
  const std::vector<RowGroup> groups = random_groups(s.m, slots, random);
  const DecodeCase::Run run = c.run(x, groups);
  ASSERT_TRUE(run.report.ok()) << run.report.text();
  expect_oracle(c, x, groups, run.out);
}

}  // namespace
}  // namespace deltad::cuda
