// The body of attention, written on Lanes and on a Products that says how bf16 pairs are
// multiplied; included once by each attention_ISA.cc after those, and local to that file (see
// lanes_avx512.h for why).
//
// Products: Element (type of queries and weights), Pairs (16 pairs of bf16 from the cache),
//   load(p), first_only(pairs) (second elements zeroed), dot(acc, pairs, const Element x[2]),
//   store(Element*, F) of 16, store_first(Element*, F, n),
//   stored(F) (a value as an Element holds it), kScoreRows, kValueRows, kValueVectors (sizes of the
//   blocks held in registers) and score_blocks(rows).
//
// Every accumulator is one lane of one row and runs over its products in order, so that the sizes
// of register blocks do not show in the results.
#pragma once

#include "kernels/cpu/attention.h"

namespace deltad::cpu {
namespace {

using F = Lanes::F;
using Element = Products::Element;

// 2^x for x ≤ 0 within 1e-7; values below 2^-100 count as that: too small to show in any sum, large
// enough that no product of theirs is subnormal (and slow).
F exp2(F x) {
  x = Lanes::max(Lanes::set1(-100.0f), x);
  const F n = Lanes::round(x);
  const F f = Lanes::sub(x, n);
  F p = Lanes::set1(0x1.5bba14p-10f);
  p = Lanes::fma(p, f, Lanes::set1(0x1.3cea88p-7f));
  p = Lanes::fma(p, f, Lanes::set1(0x1.c6b752p-5f));
  p = Lanes::fma(p, f, Lanes::set1(0x1.ebf9bcp-3f));
  p = Lanes::fma(p, f, Lanes::set1(0x1.62e42ap-1f));
  p = Lanes::fma(p, f, Lanes::set1(1.0f));
  return Lanes::scale(p, n);
}

int smaller(int a, int b) { return a < b ? a : b; }
int larger(int a, int b) { return a > b ? a : b; }

void prepare(const AttentionTile& tile, AttentionScratch& scratch) {
  auto* out = reinterpret_cast<Element*>(scratch.query);
  for (int r = 0; r < tile.rows; ++r, out += kMaxHeadDim) {
    int d = 0;
    for (; d + 16 <= tile.head_dim; d += 16)
      Products::store(out + d, Lanes::load(tile.query[r] + d));
    if (const int n = tile.head_dim - d; n > 0) {
      Products::store_first(out + d, Lanes::load_first(tile.query[r] + d, n), n);
    }
  }
}

// Scores of R rows with the positions of B blocks.
template <int R, int B>
void score_blocks(const Element* query, int head_dim, const uint16_t* const* keys, float* scores) {
  F acc[R][B];
  for (int r = 0; r < R; ++r) {
    for (int b = 0; b < B; ++b) acc[r][b] = Lanes::set1(0.0f);
  }
  for (int d = 0; d < head_dim; d += 2) {
    Products::Pairs k[B];
    for (int b = 0; b < B; ++b) k[b] = Products::load(keys[b] + d * kKvTokens);
    for (int r = 0; r < R; ++r) {
      for (int b = 0; b < B; ++b) {
        acc[r][b] = Products::dot(acc[r][b], k[b], query + r * kMaxHeadDim + d);
      }
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int b = 0; b < B; ++b) Lanes::store(scores + r * kSegment + b * kKvTokens, acc[r][b]);
  }
}

template <int R>
void score_rows(int rows, const Element* query, int head_dim, const uint16_t* const* keys,
                int blocks, float* scores) {
  if (rows < R) {
    if constexpr (R > 1) score_rows<R - 1>(rows, query, head_dim, keys, blocks, scores);
    return;
  }
  constexpr int B = Products::score_blocks(R);
  int b = 0;
  for (; b + B <= blocks; b += B) {
    score_blocks<R, B>(query, head_dim, keys + b, scores + b * kKvTokens);
  }
  if constexpr (B > 1) {
    for (; b < blocks; ++b) {
      score_blocks<R, 1>(query, head_dim, keys + b, scores + b * kKvTokens);
    }
  }
}

// Turns n scores of a row into weights 2^(scale·score − maximum), whole blocks of them: zeros from
// n on. The sum is that of the weights as they are stored, so that they add up to one.
void softmax(const float* scores, int n, float scale, Element* weights, float* maximum,
             float* sum) {
  const int whole = n / 16 * 16;
  const F lowest = Lanes::set1(-__builtin_inff());
  F top = lowest;
  for (int t = 0; t < whole; t += 16) top = Lanes::max(top, Lanes::load(scores + t));
  if (whole < n)
    top = Lanes::max(top, Lanes::keep_first(Lanes::load(scores + whole), n - whole, lowest));
  *maximum = Lanes::largest(top) * scale;
  const F m = Lanes::set1(*maximum), s = Lanes::set1(scale);
  F total = Lanes::set1(0.0f);
  for (int t = 0; t < whole; t += 16) {
    const F w = exp2(Lanes::fms(Lanes::load(scores + t), s, m));
    Products::store(weights + t, w);
    total = Lanes::add(total, Products::stored(w));
  }
  if (whole < n) {
    F w = exp2(Lanes::fms(Lanes::load(scores + whole), s, m));
    w = Lanes::keep_first(w, n - whole, Lanes::set1(0.0f));
    Products::store(weights + whole, w);
    total = Lanes::add(total, Products::stored(w));
  }
  *sum = Lanes::sum(total);
}

// Weighted values of R rows in N·16 dimensions. values: the segment's blocks at the first of these
// dimensions. Beyond a row's own positions nothing is read into its sums, not even times zero: a
// block's unused positions may hold anything.
template <int R, int N>
void weigh_block(const Element* weights, const int* counts, const uint16_t* const* values,
                 int padded_dim, float* out, int64_t out_stride) {
  F acc[R][N];
  for (int r = 0; r < R; ++r) {
    for (int i = 0; i < N; ++i) acc[r][i] = Lanes::set1(0.0f);
  }
  int common = counts[0], longest = counts[0];
  for (int r = 1; r < R; ++r) {
    common = smaller(common, counts[r]);
    longest = larger(longest, counts[r]);
  }
  int t = 0;
  for (; t + 2 <= common; t += 2) {
    const uint16_t* at = values[t / kKvTokens] + t % kKvTokens * padded_dim;
    Products::Pairs v[N];
    for (int i = 0; i < N; ++i) v[i] = Products::load(at + 32 * i);
    for (int r = 0; r < R; ++r) {
      for (int i = 0; i < N; ++i) {
        acc[r][i] = Products::dot(acc[r][i], v[i], weights + r * kSegment + t);
      }
    }
  }
  for (; t < longest; t += 2) {
    const uint16_t* at = values[t / kKvTokens] + t % kKvTokens * padded_dim;
    Products::Pairs v[N];
    for (int i = 0; i < N; ++i) v[i] = Products::load(at + 32 * i);
    for (int r = 0; r < R; ++r) {
      if (counts[r] >= t + 2) {
        for (int i = 0; i < N; ++i) {
          acc[r][i] = Products::dot(acc[r][i], v[i], weights + r * kSegment + t);
        }
      } else if (counts[r] == t + 1) {
        for (int i = 0; i < N; ++i) {
          acc[r][i] =
              Products::dot(acc[r][i], Products::first_only(v[i]), weights + r * kSegment + t);
        }
      }
    }
  }
  for (int r = 0; r < R; ++r) {
    if (counts[r] <= 0) continue;
    for (int i = 0; i < N; ++i) Lanes::store(out + r * out_stride + 16 * i, acc[r][i]);
  }
}

template <int R, int N>
void weigh_rows(int rows, int vectors, const Element* weights, const int* counts,
                const uint16_t* const* values, int padded_dim, float* out, int64_t out_stride) {
  if (rows < R) {
    if constexpr (R > 1) {
      weigh_rows<R - 1, N>(rows, vectors, weights, counts, values, padded_dim, out, out_stride);
    }
  } else if (vectors < N) {
    if constexpr (N > 1) {
      weigh_rows<R, N - 1>(rows, vectors, weights, counts, values, padded_dim, out, out_stride);
    }
  } else {
    weigh_block<R, N>(weights, counts, values, padded_dim, out, out_stride);
  }
}

void segment(const AttentionTile& tile, AttentionScratch& scratch, int segment, float* partial) {
  const int first = segment * kSegment;
  const int64_t stride = tile.padded_dim + kPartialTail;
  int counts[kAttentionRows], longest = 0;
  for (int r = 0; r < tile.rows; ++r) {
    counts[r] = smaller(tile.length[r] - first, kSegment);
    longest = larger(longest, counts[r]);
  }
  const int blocks = (longest + kKvTokens - 1) / kKvTokens;
  const uint16_t *keys[kSegmentBlocks], *values[kSegmentBlocks];
  for (int b = 0; b < blocks; ++b) {
    keys[b] = tile.cache + tile.blocks[first / kKvTokens + b] * tile.block_stride;
    values[b] = keys[b] + kKvTokens * tile.head_dim;
  }

  const auto* query = reinterpret_cast<const Element*>(scratch.query);
  for (int r = 0; r < tile.rows; r += Products::kScoreRows) {
    score_rows<Products::kScoreRows>(smaller(tile.rows - r, Products::kScoreRows),
                                     query + r * kMaxHeadDim, tile.head_dim, keys, blocks,
                                     scratch.scores + r * kSegment);
  }

  auto* weights = reinterpret_cast<Element*>(scratch.weights);
  for (int r = 0; r < tile.rows; ++r) {
    if (counts[r] <= 0) continue;
    float* tail = partial + r * stride + tile.padded_dim;
    softmax(scratch.scores + r * kSegment, counts[r], tile.scale, weights + r * kSegment, &tail[0],
            &tail[1]);
  }

  for (int d = 0; d < tile.padded_dim; d += 16 * Products::kValueVectors) {
    const int vectors = smaller((tile.padded_dim - d) / 16, Products::kValueVectors);
    for (int r = 0; r < tile.rows; r += Products::kValueRows) {
      weigh_rows<Products::kValueRows, Products::kValueVectors>(
          smaller(tile.rows - r, Products::kValueRows), vectors, weights + r * kSegment, counts + r,
          values, tile.padded_dim, partial + r * stride + d, stride);
    }
    for (int b = 0; b < blocks; ++b) values[b] += 32 * Products::kValueVectors;
  }
}

void combine(float* sum, const float* next, int padded_dim) {
  float* tail = sum + padded_dim;
  const float* next_tail = next + padded_dim;
  const float top = tail[0] > next_tail[0] ? tail[0] : next_tail[0];
  const F shrink = exp2(Lanes::set1(tail[0] - top));
  const F next_shrink = exp2(Lanes::set1(next_tail[0] - top));
  for (int d = 0; d < padded_dim; d += 16) {
    const F scaled = Lanes::mul(Lanes::load(next + d), next_shrink);
    Lanes::store(sum + d, Lanes::fma(Lanes::load(sum + d), shrink, scaled));
  }
  const F scaled = Lanes::mul(Lanes::set1(next_tail[1]), next_shrink);
  tail[0] = top;
  Lanes::store_first(tail + 1, Lanes::fma(Lanes::set1(tail[1]), shrink, scaled), 1);
}

void finish(void* out, const float* sum, int head_dim, int padded_dim) {
  auto* to = static_cast<Element*>(out);
  const F total = Lanes::set1(sum[padded_dim + 1]);
  for (int d = 0; d < head_dim; d += 16) {
    const F v = Lanes::div(Lanes::load(sum + d), total);
    if (head_dim - d >= 16) {
      Products::store(to + d, v);
    } else {
      Products::store_first(to + d, v, head_dim - d);
    }
  }
}

}  // namespace
}  // namespace deltad::cpu
