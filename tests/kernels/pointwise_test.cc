// embed and rms_norm on every instruction set of this machine, with variants that replace the
// weight, against the fp64 oracle and bit for bit over batches and threads.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "backend/cpu/cpu_ops.h"
#include "kernels/ref/norm.h"
#include "tensor/float16.h"

namespace deltad {
namespace {

constexpr WeightId kEmbedding = 0, kNorm = 1;
constexpr int64_t kVocab = 50;
constexpr float kEps = 1e-5f;

std::vector<Isa> isas() {
  std::vector<Isa> all;
  for (Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16}) {
    if (isa <= best_isa()) all.push_back(isa);
  }
  return all;
}

std::vector<uint16_t> random_bf16(int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.5f, 1.0f);
  std::vector<uint16_t> values(static_cast<size_t>(count));
  for (uint16_t& v : values) v = f32_to_bf16(normal(random));
  return values;
}

// A base with an embedding and a norm, and two variants: the first replaces the norm, the second
// the norm and the embedding, with a larger vocabulary.
class Weights {
 public:
  explicit Weights(int64_t columns)
      : embedding{random_bf16(kVocab * columns, 1), {}, random_bf16((kVocab + 7) * columns, 2)},
        norm{random_bf16(columns, 3), random_bf16(columns, 4), random_bf16(columns, 5)} {
    const WeightSpec specs[] = {{WeightKind::kEmbedding, {{"embed.weight", kVocab}}, columns},
                                {WeightKind::kVector, {{"norm.weight", columns}}, 1}};
    EXPECT_TRUE(base.declare({specs[0], specs[1]}).ok());
    EXPECT_TRUE(base.put_rows(kEmbedding, 0, 0, kVocab, embedding[0].data()).ok());
    EXPECT_TRUE(base.put_rows(kNorm, 0, 0, columns, norm[0].data()).ok());
    for (int v = 0; v < 2; ++v) {
      VariantContent content{{}, {{kNorm, 0, columns}}};
      if (v == 1) content.dense.push_back({kEmbedding, 0, kVocab + 7});
      auto made = CpuVariantWeights::make(base, content);
      CHECK(made.ok(), made.status().message().c_str());
      variants.push_back(std::move(*made));
      CpuVariantWeights& variant = *variants.back();
      EXPECT_TRUE(
          variant.put_dense_rows(kNorm, 0, 0, columns, norm[static_cast<size_t>(v) + 1].data())
              .ok());
      if (v == 1) {
        EXPECT_TRUE(variant.put_dense_rows(kEmbedding, 0, 0, kVocab + 7, embedding[2].data()).ok());
      }
      EXPECT_TRUE(variant.finish().ok());
    }
  }

  const std::vector<uint16_t>& embedding_of(int32_t slot) const {
    return slot == 1 ? embedding[2] : embedding[0];
  }
  const std::vector<uint16_t>& norm_of(int32_t slot) const {
    return norm[static_cast<size_t>(slot + 1)];
  }

  CpuWeights base;
  std::vector<std::unique_ptr<CpuVariantWeights>> variants;

 private:
  std::vector<uint16_t> embedding[3], norm[3];
};

// Rows in three groups, as even as they get: the base, variant 1, variant 0.
std::vector<RowGroup> groups_of(int32_t rows) {
  const int32_t a = rows / 3, b = rows - rows / 3;
  std::vector<RowGroup> groups;
  if (a > 0) groups.push_back({0, a, kBaseSlot});
  groups.push_back({a, b, 1});
  if (b < rows) groups.push_back({b, rows, 0});
  return groups;
}

class PointwiseTest : public testing::TestWithParam<Isa> {};
INSTANTIATE_TEST_SUITE_P(Isas, PointwiseTest, testing::ValuesIn(isas()),
                         [](const auto& info) { return std::string(isa_name(info.param)); });

struct Machine {
  Machine(Isa isa, int threads, const Weights& weights)
      : team(threads, false), ops(isa, team, weights.base) {
    ops.bind_slot(0, weights.variants[0].get());
    ops.bind_slot(1, weights.variants[1].get());
  }
  WorkerTeam team;
  CpuOps ops;
};

// Bytes of the activation rows, padding included.
std::vector<uint32_t> run_norm(CpuOps& ops, std::vector<float> x, int64_t columns,
                               const std::vector<RowGroup>& groups) {
  const int64_t rows = static_cast<int64_t>(x.size()) / columns;
  const int64_t stride = ops.row_stride(columns);
  std::vector<uint32_t> raw(static_cast<size_t>(rows * stride), 0);
  ops.rms_norm(matrix_view(raw.data(), ops.activation_type(), rows, columns, stride),
               matrix_view(x.data(), DType::kF32, rows, columns, columns), kNorm, kEps, groups);
  return raw;
}

TEST_P(PointwiseTest, RmsNormMatchesTheOracle) {
  double worst = 0;
  for (int64_t columns : {1, 24, 100, 576, 1536}) {
    const Weights weights(columns);
    for (int32_t rows : {1, 3, 17}) {
      Machine machine(GetParam(), 2, weights);
      std::mt19937 random(9);
      std::normal_distribution<float> normal;
      std::vector<float> x(static_cast<size_t>(rows * columns));
      for (float& v : x) v = 30 * normal(random);
      const auto groups = groups_of(rows);
      const auto raw = run_norm(machine.ops, x, columns, groups);
      const bool bf16 = machine.ops.activation_type() == DType::kBF16;
      const int64_t stride = machine.ops.row_stride(columns);
      // fp32: half the relative error of a sum of columns squares in 64 partial sums, then the
      // root, the quotient and three products; then the rounding to the activation's type.
      const double bound =
          (static_cast<double>(columns) / 128 + 10) * 0x1p-24 + (bf16 ? 0x1p-8 : 0.0);
      for (const RowGroup& group : groups) {
        std::vector<double> weight;
        for (uint16_t w : weights.norm_of(group.slot)) weight.push_back(bf16_to_f32(w));
        for (int32_t r = group.first_row; r < group.end_row; ++r) {
          const auto expected =
              ref::rms_norm({x.begin() + r * columns, x.begin() + (r + 1) * columns}, weight, kEps);
          for (int64_t c = 0; c < stride; ++c) {
            const auto at = static_cast<size_t>(r * stride + c);
            const double got = bf16 ? bf16_to_f32(reinterpret_cast<const uint16_t*>(raw.data())[at])
                                    : std::bit_cast<float>(raw[at]);
            if (c >= columns) {
              ASSERT_EQ(got, 0) << "padding is written";
              continue;
            }
            const double want = expected[static_cast<size_t>(c)];
            ASSERT_NEAR(got, want, bound * std::fabs(want))
                << rows << " rows of " << columns << ", row " << r << ", column " << c;
            if (want != 0) worst = std::max(worst, std::fabs(got / want - 1));
          }
        }
      }
    }
  }
  std::printf("%s: largest relative error %.2e\n", isa_name(GetParam()), worst);
}

TEST_P(PointwiseTest, NormOfARowDependsOnThatRowAlone) {
  const int64_t columns = 676, rows = 40;
  const Weights weights(columns);
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(rows * columns));
  for (float& v : x) v = normal(random);
  const auto groups = groups_of(rows);
  Machine alone(GetParam(), 1, weights);
  for (int threads : {1, 2, 3}) {
    Machine machine(GetParam(), threads, weights);
    const auto all = run_norm(machine.ops, x, columns, groups);
    const int64_t row_bytes = machine.ops.row_stride(columns) *
                              static_cast<int64_t>(dtype_size(machine.ops.activation_type()));
    for (const RowGroup& group : groups) {
      for (int32_t r = group.first_row; r < group.end_row; ++r) {
        const auto one =
            run_norm(alone.ops, {x.begin() + r * columns, x.begin() + (r + 1) * columns}, columns,
                     {{0, 1, group.slot}});
        ASSERT_EQ(std::memcmp(reinterpret_cast<const char*>(all.data()) + r * row_bytes, one.data(),
                              static_cast<size_t>(row_bytes)),
                  0)
            << threads << " threads, row " << r;
      }
    }
  }
}

TEST_P(PointwiseTest, EmbedsFromTheVariantsOwnVocabulary) {
  for (int64_t columns : {1, 24, 100, 576}) {
    const Weights weights(columns);
    for (int32_t rows : {1, 3, 17, 200}) {
      Machine machine(GetParam(), 2, weights);
      const auto groups = groups_of(rows);
      std::vector<int32_t> ids(static_cast<size_t>(rows));
      for (const RowGroup& group : groups) {
        const auto vocab = static_cast<int32_t>(kVocab + (group.slot == 1 ? 7 : 0));
        for (int32_t r = group.first_row; r < group.end_row; ++r) {
          ids[static_cast<size_t>(r)] = vocab - 1 - (r * 11) % vocab;
        }
      }
      std::vector<float> out(static_cast<size_t>(rows * (columns + 3)), -7.0f);
      machine.ops.embed(matrix_view(out.data(), DType::kF32, rows, columns, columns + 3),
                        kEmbedding, ids, groups);
      for (const RowGroup& group : groups) {
        const auto& table = weights.embedding_of(group.slot);
        for (int32_t r = group.first_row; r < group.end_row; ++r) {
          const float* row = out.data() + r * (columns + 3);
          for (int64_t c = 0; c < columns; ++c) {
            const auto at = static_cast<size_t>(ids[static_cast<size_t>(r)] * columns + c);
            ASSERT_EQ(row[c], bf16_to_f32(table[at])) << rows << " rows, row " << r;
          }
          ASSERT_EQ(row[columns], -7.0f) << "written beyond the columns";
        }
      }
    }
  }
}

}  // namespace
}  // namespace deltad
