// rope_append and attention on every instruction set of this machine: against the fp64 oracle, and
// bit for bit against themselves over chunkings, threads, block places and neighbours.
#include "kernels/ref/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "backend/cpu/cpu_ops.h"
#include "kernels/ref/rope.h"
#include "tensor/float16.h"

namespace deltad {
namespace {

constexpr int kBlockTokens = 16;
constexpr int kLayers = 2;  // the tests use layer 1, so that a wrong layer offset shows
constexpr double kTheta = 10000.0;
constexpr double kBf16 = 0x1p-8;  // largest relative error of rounding to bf16
constexpr double kFp32 = 0x1p-24;

std::vector<Isa> isas() {
  std::vector<Isa> all;
  for (Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16}) {
    if (isa <= best_isa()) all.push_back(isa);
  }
  return all;
}

AttentionShape make_shape(int heads, int kv_heads, int head_dim) {
  AttentionShape shape;
  shape.heads = heads;
  shape.kv_heads = kv_heads;
  shape.head_dim = head_dim;
  shape.q_offset = 0;
  shape.k_offset = (heads * head_dim + 15) / 16 * 16;
  shape.v_offset = shape.k_offset + (kv_heads * head_dim + 15) / 16 * 16;
  shape.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(head_dim)));
  return shape;
}

int qkv_columns(const AttentionShape& s) {
  return s.v_offset + (s.kv_heads * s.head_dim + 15) / 16 * 16;
}

// The fused q, k, v of a sequence before rotation, [length, columns].
std::vector<float> random_qkv(const AttentionShape& shape, int length, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> qkv(static_cast<size_t>(length) * qkv_columns(shape));
  for (float& x : qkv) x = 1.5f * normal(random);
  return qkv;
}

// Ops of one instruction set over a cache whose unused parts hold NaNs: what is masked must not
// reach any sum, not even times zero.
class Machine {
 public:
  Machine(Isa isa, int threads, const AttentionShape& shape, int blocks, int positions)
      : shape_(shape), team_(threads, false), ops_(isa, team_, weights_), blocks_(blocks) {
    block_bytes_ = ops_.kv_block_bytes(shape, kBlockTokens);
    auto cache = Buffer::cpu(static_cast<size_t>(block_bytes_) * blocks * kLayers);
    cache_ = std::move(*cache);
    std::memset(cache_.data(), 0xff, cache_.bytes());
    angles_.resize(static_cast<size_t>(positions) * shape.head_dim);
    for (int p = 0; p < positions; ++p) {
      for (int i = 0; i < shape.head_dim / 2; ++i) {
        const double angle = ref::rope_angle(p, i, shape.head_dim, kTheta);
        float* row = angles_.data() + static_cast<size_t>(p) * shape.head_dim;
        row[i] = static_cast<float>(std::cos(angle));
        row[i + shape.head_dim / 2] = static_cast<float>(std::sin(angle));
      }
    }
  }

  // One step; qkv [rows, columns] is rotated in place. Returns the output as fp32.
  std::vector<float> step(std::vector<float>& qkv, const std::vector<SequenceSpan>& spans) {
    const int64_t rows = static_cast<int64_t>(qkv.size()) / qkv_columns(shape_);
    const int64_t width = shape_.heads * shape_.head_dim;
    const int64_t stride = ops_.row_stride(width);
    const DType type = ops_.activation_type();
    std::vector<uint32_t> raw(static_cast<size_t>(rows * stride), 0x7fc07fc0u);
    const TensorView in =
        matrix_view(qkv.data(), DType::kF32, rows, qkv_columns(shape_), qkv_columns(shape_));
    const TensorView out = matrix_view(raw.data(), type, rows, width, stride);
    const TensorView angles = matrix_view(angles_.data(), DType::kF32,
                                          static_cast<int64_t>(angles_.size()) / shape_.head_dim,
                                          shape_.head_dim, shape_.head_dim);
    const KvView kv{cache_.data(), blocks_, kBlockTokens, block_bytes_};
    ops_.rope_append(in, shape_, angles, kv, 1, spans);
    ops_.attention(out, in, shape_, kv, 1, spans);
    std::vector<float> result;
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < width; ++c) {
        result.push_back(type == DType::kBF16 ? bf16_to_f32(out.row<uint16_t>(r)[c])
                                              : out.row<float>(r)[c]);
      }
    }
    return result;
  }

  bool bf16() const { return ops_.activation_type() == DType::kBF16; }

 private:
  const AttentionShape shape_;
  WorkerTeam team_;
  CpuWeights weights_;
  CpuOps ops_;
  int32_t blocks_;
  int64_t block_bytes_;
  Buffer cache_;
  std::vector<float> angles_;
};

int blocks_for(int length) { return (length + kBlockTokens - 1) / kBlockTokens; }

std::vector<double> head_of(const float* row, int offset, int head, int head_dim, bool round) {
  std::vector<double> values;
  for (int d = 0; d < head_dim; ++d) {
    const float x = row[offset + head * head_dim + d];
    values.push_back(round ? bf16_to_f32(f32_to_bf16(x)) : x);
  }
  return values;
}

struct ShapeCase {
  int heads, kv_heads, head_dim;
};

class AttentionTest : public testing::TestWithParam<Isa> {};
INSTANTIATE_TEST_SUITE_P(Isas, AttentionTest, testing::ValuesIn(isas()),
                         [](const auto& info) { return std::string(isa_name(info.param)); });

// Two comparisons. With the operands as the kernel holds them (keys and values rounded to bf16)
// little error is left, so a wrong element shows. With exact operands the
// error is that of the path, within a bound that follows from the types.
TEST_P(AttentionTest, MatchesTheOracle) {
  const ShapeCase shapes[] = {{1, 1, 16}, {3, 1, 24},  {4, 2, 26},  {4, 4, 32}, {9, 3, 64},
                              {4, 1, 96}, {4, 2, 128}, {2, 1, 256}, {14, 1, 64}};
  double worst_held = 0, worst_exact = 0, error_squares = 0, squares = 0;
  for (const ShapeCase& c : shapes) {
    const AttentionShape shape = make_shape(c.heads, c.kv_heads, c.head_dim);
    for (int length : {1, 15, 16, 17, 100, 513}) {
      if (length == 513 && c.heads > 4 && c.head_dim != 64) continue;
      Machine machine(GetParam(), 2, shape, blocks_for(length), length);
      std::vector<int32_t> blocks(static_cast<size_t>(blocks_for(length)));
      std::iota(blocks.rbegin(), blocks.rend(), 0);
      const std::vector<float> before = random_qkv(shape, length, 1);
      std::vector<float> qkv = before;
      const std::vector<float> out = machine.step(qkv, {{0, length, 0, blocks.data()}});
      const bool bf16 = machine.bf16();
      const int columns = qkv_columns(shape);

      for (int head = 0; head < c.heads; ++head) {
        const int kv_head = head / (c.heads / c.kv_heads);
        std::vector<std::vector<double>> keys, values, exact_keys, exact_values;
        for (int t = 0; t < length; ++t) {
          const float* row = qkv.data() + static_cast<size_t>(t) * columns;
          const float* row_before = before.data() + static_cast<size_t>(t) * columns;
          keys.push_back(head_of(row, shape.k_offset, kv_head, c.head_dim, true));
          values.push_back(head_of(row, shape.v_offset, kv_head, c.head_dim, true));
          exact_keys.push_back(ref::rotate(
              head_of(row_before, shape.k_offset, kv_head, c.head_dim, false), t, kTheta));
          exact_values.push_back(head_of(row_before, shape.v_offset, kv_head, c.head_dim, false));
          // The oracle is slow: short contexts, ends of segments, the last rows, a few between.
          const bool checked = t < 20 || t + 3 >= length || (t + 1) % 256 <= 1 || t % 61 == 0;
          if (!checked) continue;
          const auto query = head_of(row, shape.q_offset, head, c.head_dim, false);
          const auto held = ref::attend(query, keys, values, shape.scale);
          const auto exact_query =
              ref::rotate(head_of(row_before, shape.q_offset, head, c.head_dim, false), t, kTheta);
          const auto exact = ref::attend(exact_query, exact_keys, exact_values, shape.scale);

          // fp32: a sum of n products is off by at most n·2^-24 of the sum of their sizes. A score
          // off by e changes a weight by the factor 1 ± e, and its share by 1 ± 2e.
          double score_size = 0, largest_value = 0;
          for (int s = 0; s <= t; ++s) {
            double size = 0;
            for (int d = 0; d < c.head_dim; ++d) {
              size += std::fabs(exact_query[static_cast<size_t>(d)] *
                                exact_keys[static_cast<size_t>(s)][static_cast<size_t>(d)]);
              largest_value =
                  std::max(largest_value,
                           std::fabs(exact_values[static_cast<size_t>(s)][static_cast<size_t>(d)]));
            }
            score_size = std::max(score_size, size * shape.scale);
          }
          const double output = bf16 ? kBf16 : kFp32;
          const double held_bound = largest_value * (2 * score_size * (c.head_dim + 4) * kFp32 +
                                                     (t + 20) * kFp32 + output);
          const double exact_bound =
              held_bound + largest_value * (2 * score_size * kBf16 * 1.1 + kBf16);
          for (int d = 0; d < c.head_dim; ++d) {
            const double got = out[(static_cast<size_t>(t) * c.heads + head) * c.head_dim + d];
            const auto i = static_cast<size_t>(d);
            const double held_error = std::fabs(got - held[i]) / held_bound;
            const double exact_error = std::fabs(got - exact[i]) / exact_bound;
            ASSERT_LE(held_error, 1)
                << c.heads << "/" << c.kv_heads << "×" << c.head_dim << " length " << length
                << " row " << t << " head " << head << " dimension " << d << ": " << got
                << ", expected " << held[i];
            ASSERT_LE(exact_error, 1);
            worst_held = std::max(worst_held, held_error);
            worst_exact = std::max(worst_exact, exact_error);
            error_squares += (got - exact[i]) * (got - exact[i]);
            squares += exact[i] * exact[i];
          }
        }
      }
    }
  }
  std::printf(
      "%s: relative rms error %.2e; largest share of the bound %.2f (operands as held %.2f)\n",
      isa_name(GetParam()), std::sqrt(error_squares / squares), worst_exact, worst_held);
}

// A sequence's rows, cut into chunks (the last size repeats) and computed with `neighbours` other
// sequences around it.
std::vector<float> run_chunks(Machine& machine, const AttentionShape& shape,
                              const std::vector<float>& sequence, std::vector<int> chunks,
                              std::vector<int32_t> blocks, int neighbours,
                              std::vector<std::vector<int32_t>> neighbour_blocks) {
  const int columns = qkv_columns(shape);
  const int length = static_cast<int>(sequence.size()) / columns;
  const size_t width = static_cast<size_t>(shape.heads * shape.head_dim);
  std::vector<float> all;
  int at = 0;
  for (size_t c = 0; at < length; ++c) {
    const int rows = std::min(chunks[std::min(c, chunks.size() - 1)], length - at);
    std::vector<float> qkv;
    std::vector<SequenceSpan> spans;
    int first = 0, mine = 0;
    for (int n = 0; n <= neighbours; ++n) {
      const bool own = n == neighbours / 2;
      const int count = own ? rows : 1 + static_cast<int>(c + static_cast<size_t>(n)) % 5;
      std::vector<float> part =
          own ? std::vector<float>(sequence.begin() + static_cast<int64_t>(at) * columns,
                                   sequence.begin() + static_cast<int64_t>(at + rows) * columns)
              : random_qkv(shape, count, static_cast<unsigned>(100 * c) + static_cast<unsigned>(n));
      qkv.insert(qkv.end(), part.begin(), part.end());
      if (own) mine = first;
      spans.push_back({first, first + count, own ? at : 0,
                       own ? blocks.data() : neighbour_blocks[static_cast<size_t>(n)].data()});
      first += count;
    }
    const std::vector<float> out = machine.step(qkv, spans);
    all.insert(all.end(), out.begin() + static_cast<int64_t>(static_cast<size_t>(mine) * width),
               out.begin() + static_cast<int64_t>(static_cast<size_t>(mine + rows) * width));
    at += rows;
  }
  return all;
}

TEST_P(AttentionTest, RowsDependOnNothingButThemselves) {
  for (const ShapeCase& c : {ShapeCase{3, 1, 64}, ShapeCase{4, 2, 24}, ShapeCase{14, 1, 16}}) {
    const AttentionShape shape = make_shape(c.heads, c.kv_heads, c.head_dim);
    const int length = 600;  // three segments
    const int own_blocks = blocks_for(length), blocks = own_blocks + 8;
    const std::vector<float> sequence = random_qkv(shape, length, 7);
    std::vector<int32_t> ids(static_cast<size_t>(blocks));
    std::iota(ids.begin(), ids.end(), 0);
    std::vector<float> expected;
    {
      Machine machine(GetParam(), 1, shape, blocks, length);
      expected = run_chunks(machine, shape, sequence, {length}, ids, 0, {});
    }
    for (float x : expected) ASSERT_TRUE(std::isfinite(x));

    const struct {
      std::vector<int> chunks;
      int threads, neighbours;
    } runs[] = {{{length}, 2, 0}, {{256}, 2, 0},          {{1}, 1, 0},          {{505, 1}, 3, 0},
                {{400, 7}, 3, 2}, {{1, 33, 2, 64}, 2, 1}, {{17, 100, 5}, 1, 3}, {{590, 1}, 2, 3}};
    unsigned seed = 0;
    for (const auto& run : runs) {
      std::vector<int32_t> places = ids;
      std::shuffle(places.begin(), places.end(), std::mt19937(++seed));
      std::vector<std::vector<int32_t>> others;
      for (int n = 0; n <= run.neighbours; ++n) {
        others.push_back({places[static_cast<size_t>(own_blocks + n)]});
      }
      Machine machine(GetParam(), run.threads, shape, blocks, length);
      const std::vector<float> got =
          run_chunks(machine, shape, sequence, run.chunks, places, run.neighbours, others);
      ASSERT_EQ(got.size(), expected.size());
      for (size_t i = 0; i < got.size(); ++i) {
        ASSERT_EQ(std::memcmp(&got[i], &expected[i], sizeof(float)), 0)
            << "chunks of " << run.chunks[0] << "…, " << run.threads << " threads, row "
            << i / static_cast<size_t>(c.heads * c.head_dim) << ": " << got[i] << ", expected "
            << expected[i];
      }
    }
  }
}

// A step that failed is done again: what it left behind at these and later positions must not show.
TEST_P(AttentionTest, PositionsMayBeWrittenAgain) {
  const AttentionShape shape = make_shape(4, 2, 24);
  const int length = 45, columns = qkv_columns(shape);
  const std::vector<float> sequence = random_qkv(shape, length, 3);
  const std::vector<int32_t> blocks = {2, 0, 1};
  Machine fresh(GetParam(), 2, shape, 3, length), reused(GetParam(), 2, shape, 3, length);
  std::vector<float> qkv = sequence;
  const std::vector<float> expected = fresh.step(qkv, {{0, length, 0, blocks.data()}});

  std::vector<float> stale(sequence.size(), std::nanf(""));
  reused.step(stale, {{0, length, 0, blocks.data()}});
  std::vector<float> got;
  for (int at = 0; at < length; at += 9) {
    std::vector<float> part(sequence.begin() + at * columns, sequence.begin() + (at + 9) * columns);
    const std::vector<float> out = reused.step(part, {{0, 9, at, blocks.data()}});
    got.insert(got.end(), out.begin(), out.end());
  }
  EXPECT_EQ(got, expected);
}

TEST_P(AttentionTest, RotatesQueriesAndKeys) {
  double worst = 0;
  for (int head_dim : {16, 24, 26, 64, 128, 256}) {
    const AttentionShape shape = make_shape(2, 1, head_dim);
    const int length = 37;
    const std::vector<float> before = random_qkv(shape, length, 5);
    std::vector<float> qkv = before;
    Machine machine(GetParam(), 2, shape, blocks_for(length), length);
    const std::vector<int32_t> blocks = {0, 1, 2};
    machine.step(qkv, {{0, length, 0, blocks.data()}});
    for (int t = 0; t < length; ++t) {
      const float* was = before.data() + static_cast<size_t>(t) * qkv_columns(shape);
      const float* is = qkv.data() + static_cast<size_t>(t) * qkv_columns(shape);
      for (const auto& [offset, head] : {std::pair{shape.q_offset, 0}, std::pair{shape.q_offset, 1},
                                         std::pair{shape.k_offset, 0}}) {
        const auto plain = head_of(was, offset, head, head_dim, false);
        const auto expected = ref::rotate(plain, t, kTheta);
        const auto got = head_of(is, offset, head, head_dim, false);
        for (int d = 0; d < head_dim; ++d) {
          const auto i = static_cast<size_t>(d),
                     j = static_cast<size_t>((d + head_dim / 2) % head_dim);
          // Rounded: cosine, sine, both products, the sum.
          const double bound = 3 * kFp32 * (std::fabs(plain[i]) + std::fabs(plain[j]));
          ASSERT_NEAR(got[i], expected[i], bound);
          worst = std::max(worst, std::fabs(got[i] - expected[i]) / bound);
        }
      }
      for (int d = 0; d < head_dim; ++d) {
        ASSERT_EQ(is[shape.v_offset + d], was[shape.v_offset + d]);
      }
    }
  }
  std::printf("%s: largest share of the bound %.2f\n", isa_name(GetParam()), worst);
}

}  // namespace
}  // namespace deltad
