// The body of attention, written on Lanes; included once by each attention_ISA.cc after its Lanes,
// and local to that file (see lanes_avx512.h for why).
//
// Every accumulator is one lane of one row and runs over its products in order, so that the sizes
// of the register blocks below do not show in the results.
#pragma once

#include "kernels/cpu/attention.h"
#include "kernels/cpu/store_template.h"

namespace deltad::cpu {
namespace {

using F = Lanes::F;

// Sixteen pairs of bf16 values from the cache, widened.
struct Pairs {
  F first, second;
};

Pairs load_pairs(const uint16_t* p) {
  return {Lanes::first_of_pairs(p), Lanes::second_of_pairs(p)};
}

F add_products(const F& sum, const Pairs& pairs, const float* x) {
  return Lanes::fma(pairs.second, Lanes::set1(x[1]),
                    Lanes::fma(pairs.first, Lanes::set1(x[0]), sum));
}

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

// Rows held in registers, blocks of scores (each has an accumulator a row and two operands) and
// vectors of values beside them.
constexpr int kRowsHeld = Lanes::kRegisters >= 32 ? 12 : Lanes::kRegisters >= 8 ? 4 : 1;
constexpr int kVectorsHeld = Lanes::kRegisters >= 32 ? 2 : 1;
template <int Rows>
constexpr int kBlocksHeld = Lanes::kRegisters - 2 >= 4 * (Rows + 2) ? 4
                            : Lanes::kRegisters - 2 >= (Rows + 2)
                                ? (Lanes::kRegisters - 2) / (Rows + 2)
                                : 1;

// With so few rows memory sets the pace, and what comes next is fetched meanwhile: a segment's
// values during its scores, the next segment's keys during its weighted values.
constexpr int kFetchRows = 8;

int smaller(int a, int b) { return a < b ? a : b; }
int larger(int a, int b) { return a > b ? a : b; }

void prepare(const AttentionTile& tile, AttentionScratch& scratch) {
  const F scale = Lanes::set1(tile.scale);
  for (int r = 0; r < tile.rows; ++r) {
    const float* query = tile.query[r];
    float* out = scratch.query + r * kMaxHeadDim;
    int d = 0;
    for (; d + 16 <= tile.head_dim; d += 16) {
      Lanes::store(out + d, Lanes::mul(Lanes::load(query + d), scale));
    }
    if (const int n = tile.head_dim - d; n > 0) {
      Lanes::store_first(out + d, Lanes::mul(Lanes::load_first(query + d, n), scale), n);
    }
  }
}

// Scores of R rows with the positions of B blocks; fetches these blocks' values.
template <int R, int B>
void score_blocks(const float* query, int head_dim, const uint16_t* const* keys,
                  const uint16_t* const* values, float* scores) {
  F acc[R][B];
  for (int r = 0; r < R; ++r) {
    for (int b = 0; b < B; ++b) acc[r][b] = Lanes::set1(0.0f);
  }
  for (int d = 0; d < head_dim; d += 2) {
    Pairs k[B];
    for (int b = 0; b < B; ++b) {
      k[b] = load_pairs(keys[b] + d * kKvTokens);
      if constexpr (R <= kFetchRows) {
        __builtin_prefetch(values[b] + d * kKvTokens);
      }
    }
    for (int r = 0; r < R; ++r) {
      for (int b = 0; b < B; ++b) {
        acc[r][b] = add_products(acc[r][b], k[b], query + r * kMaxHeadDim + d);
      }
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int b = 0; b < B; ++b) Lanes::store(scores + r * kSegment + b * kKvTokens, acc[r][b]);
  }
}

template <int R>
void score_rows(int rows, const float* query, int head_dim, const uint16_t* const* keys,
                const uint16_t* const* values, int blocks, float* scores) {
  if (rows < R) {
    if constexpr (R > 1) score_rows<R - 1>(rows, query, head_dim, keys, values, blocks, scores);
    return;
  }
  constexpr int B = kBlocksHeld<R>;
  int b = 0;
  for (; b + B <= blocks; b += B) {
    score_blocks<R, B>(query, head_dim, keys + b, values + b, scores + b * kKvTokens);
  }
  if constexpr (B > 1) {
    for (; b < blocks; ++b) {
      score_blocks<R, 1>(query, head_dim, keys + b, values + b, scores + b * kKvTokens);
    }
  }
}

// Turns n scores of a row into weights 2^(score − maximum), in place and in whole vectors: zeros
// from n on.
void softmax(float* scores, int n, float* maximum, float* sum) {
  const int whole = n / 16 * 16, rest = n - whole;
  F top = Lanes::set1(-__builtin_inff());
  for (int t = 0; t < whole; t += 16) top = Lanes::max(top, Lanes::load(scores + t));
  if (rest > 0) {
    top = Lanes::max(top, Lanes::keep_first(Lanes::load(scores + whole), rest, top));
  }
  *maximum = Lanes::largest(top);
  const F m = Lanes::set1(*maximum);
  F total = Lanes::set1(0.0f);
  for (int t = 0; t < whole; t += 16) {
    const F w = exp2(Lanes::sub(Lanes::load(scores + t), m));
    Lanes::store(scores + t, w);
    total = Lanes::add(total, w);
  }
  if (rest > 0) {
    const F w = exp2(Lanes::sub(Lanes::load(scores + whole), m));
    const F kept = Lanes::keep_first(w, rest, Lanes::set1(0.0f));
    Lanes::store(scores + whole, kept);
    total = Lanes::add(total, kept);
  }
  *sum = Lanes::sum(total);
}

// Weighted values of R rows in N·16 dimensions. values: the segment's blocks at the first of these
// dimensions. ahead: as many blocks whose keys come next. Beyond a row's own positions nothing is
// read into its sums, not even times zero: a block's unused positions may hold anything.
template <int R, int N>
void weigh_block(const float* weights, const int* counts, const uint16_t* const* values,
                 const uint16_t* const* ahead, int padded_dim, float* out, int64_t out_stride) {
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
    Pairs v[N];
    for (int i = 0; i < N; ++i) v[i] = load_pairs(at + 32 * i);
    if constexpr (R <= kFetchRows) {
      const uint16_t* fetched = ahead[t / kKvTokens] + t % kKvTokens * 16 * N;
      for (int i = 0; i < N; ++i) __builtin_prefetch(fetched + 32 * i, 0, 2);
    }
    for (int r = 0; r < R; ++r) {
      for (int i = 0; i < N; ++i) {
        acc[r][i] = add_products(acc[r][i], v[i], weights + r * kSegment + t);
      }
    }
  }
  for (; t < longest; t += 2) {
    const uint16_t* at = values[t / kKvTokens] + t % kKvTokens * padded_dim;
    Pairs v[N];
    for (int i = 0; i < N; ++i) v[i] = load_pairs(at + 32 * i);
    for (int r = 0; r < R; ++r) {
      if (counts[r] >= t + 2) {
        for (int i = 0; i < N; ++i) {
          acc[r][i] = add_products(acc[r][i], v[i], weights + r * kSegment + t);
        }
      } else if (counts[r] == t + 1) {
        for (int i = 0; i < N; ++i) {
          acc[r][i] = Lanes::fma(v[i].first, Lanes::set1(weights[r * kSegment + t]), acc[r][i]);
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
void weigh_rows(int rows, int vectors, const float* weights, const int* counts,
                const uint16_t* const* values, const uint16_t* const* ahead, int padded_dim,
                float* out, int64_t out_stride) {
  if (rows < R) {
    if constexpr (R > 1) {
      weigh_rows<R - 1, N>(rows, vectors, weights, counts, values, ahead, padded_dim, out,
                           out_stride);
    }
  } else if (vectors < N) {
    if constexpr (N > 1) {
      weigh_rows<R, N - 1>(rows, vectors, weights, counts, values, ahead, padded_dim, out,
                           out_stride);
    }
  } else {
    weigh_block<R, N>(weights, counts, values, ahead, padded_dim, out, out_stride);
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
  const uint16_t *keys[kSegmentBlocks], *values[kSegmentBlocks], *ahead[kSegmentBlocks];
  for (int b = 0; b < blocks; ++b) {
    const int block = first / kKvTokens + b, later = block + kSegmentBlocks;
    keys[b] = tile.cache + tile.blocks[block] * tile.block_stride;
    values[b] = keys[b] + kKvTokens * tile.head_dim;
    if (later < tile.end_block) {
      ahead[b] = tile.cache + tile.blocks[later] * tile.block_stride;
    } else {
      const int next = smaller(smaller(later - tile.end_block, b), tile.next_block_count - 1);
      ahead[b] = tile.next_cache + tile.next_blocks[next] * tile.block_stride;
    }
  }

  for (int r = 0; r < tile.rows; r += kRowsHeld) {
    score_rows<kRowsHeld>(smaller(tile.rows - r, kRowsHeld), scratch.query + r * kMaxHeadDim,
                          tile.head_dim, keys, values, blocks, scratch.scores + r * kSegment);
  }

  for (int r = 0; r < tile.rows; ++r) {
    if (counts[r] <= 0) continue;
    float* tail = partial + r * stride + tile.padded_dim;
    softmax(scratch.scores + r * kSegment, counts[r], &tail[0], &tail[1]);
  }

  for (int d = 0; d < tile.padded_dim; d += 16 * kVectorsHeld) {
    const int vectors = smaller((tile.padded_dim - d) / 16, kVectorsHeld);
    for (int r = 0; r < tile.rows; r += kRowsHeld) {
      weigh_rows<kRowsHeld, kVectorsHeld>(smaller(tile.rows - r, kRowsHeld), vectors,
                                          scratch.scores + r * kSegment, counts + r, values, ahead,
                                          tile.padded_dim, partial + r * stride + d, stride);
    }
    for (int b = 0; b < blocks; ++b) {
      values[b] += 32 * kVectorsHeld;
      ahead[b] += kKvTokens * 16 * kVectorsHeld;
    }
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

template <typename Store>
void finish(void* out, const float* sum, int head_dim, int padded_dim) {
  const F total = Lanes::set1(sum[padded_dim + 1]);
  for (int d = 0; d < head_dim; d += 16) {
    Store::store(out, d, Lanes::div(Lanes::load(sum + d), total), smaller(head_dim - d, 16));
  }
}

}  // namespace
}  // namespace deltad::cpu
