// The steps of low_rank.h, written on Lanes; included once by each low_rank_ISA.cc after its Lanes,
// and local to that file (see lanes_avx512.h for why).
//
// Dot: how A meets x: kStep columns at a time, acc += A[k, c…]·x[c…], lane by lane.
#pragma once

#include <cstdint>

#include "kernels/cpu/layout.h"
#include "kernels/cpu/low_rank.h"
#include "kernels/cpu/low_rank_tiles_inl.h"

namespace deltad::cpu {
namespace {

struct DotFp32 {
  static constexpr int64_t kStep = 16;
  using Operand = Lanes::F;
  static Operand load_a(const uint16_t* a) { return Lanes::load_bf16(a); }
  static Operand load_x(const void* x, int64_t c) {
    return Lanes::load(static_cast<const float*>(x) + c);
  }
  static Lanes::F add(const Operand& a, const Operand& x, const Lanes::F& acc) {
    return Lanes::fma(a, x, acc);
  }
};

constexpr bool kWideRegisters = Lanes::kRegisters >= 32;

// t of R ranks and P rows: one sum a pair, so that it does not matter which are worked out
// together.
template <typename Dot, int R, int P>
void shrink_block(const LowRankGroup& group, const void* const* x, int64_t columns, int32_t rank,
                  int32_t row) {
  const int64_t stride = group.factors.a_stride;
  const uint16_t* a = group.factors.a + rank * stride;
  Lanes::F acc[R][P];
#pragma GCC unroll 8
  for (int k = 0; k < R; ++k) {
#pragma GCC unroll 8
    for (int p = 0; p < P; ++p) acc[k][p] = Lanes::set1(0.0f);
  }
  for (int64_t c = 0; c < columns; c += Dot::kStep) {
    typename Dot::Operand v[P];
#pragma GCC unroll 8
    for (int p = 0; p < P; ++p) v[p] = Dot::load_x(x[row + p], c);
#pragma GCC unroll 8
    for (int k = 0; k < R; ++k) {
      const typename Dot::Operand w = Dot::load_a(a + k * stride + c);
#pragma GCC unroll 8
      for (int p = 0; p < P; ++p) acc[k][p] = Dot::add(w, v[p], acc[k][p]);
    }
  }
  for (int k = 0; k < R; ++k) {
    const float scale = group.factors.scale[rank + k];
    for (int p = 0; p < P; ++p)
      group.t[static_cast<int64_t>(row - group.first_row + p) * group.factors.ranks + rank + k] =
          scale * Lanes::sum(acc[k][p]);
  }
}

// Ranks from `rank` on for P rows: R at once, then the rest half as many at once.
template <typename Dot, int R, int P>
void shrink_ranks(const LowRankGroup& group, const void* const* x, int64_t columns, int32_t rank,
                  int32_t end_rank, int32_t row) {
  for (; rank + R <= end_rank; rank += R) shrink_block<Dot, R, P>(group, x, columns, rank, row);
  if constexpr (R > 1)
    if (rank < end_rank) shrink_ranks<Dot, R / 2, P>(group, x, columns, rank, end_rank, row);
}

// Rows from `row` on, as ranks: P at once, then half as many.
template <typename Dot, int P>
void shrink_rows(const LowRankGroup& group, const void* const* x, int64_t columns,
                 int32_t first_rank, int32_t end_rank, int32_t row, int32_t end_row) {
  constexpr int kMost = kWideRegisters ? 16 : 4;  // sums that the registers hold
  constexpr int kRanks = kMost / P < 8 ? kMost / P : 8;
  for (; row + P <= end_row; row += P)
    shrink_ranks<Dot, kRanks, P>(group, x, columns, first_rank, end_rank, row);
  if constexpr (P > 1)
    if (row < end_row)
      shrink_rows<Dot, P / 2>(group, x, columns, first_rank, end_rank, row, end_row);
}

template <typename Dot>
void shrink(const LowRankGroup& group, const void* const* x, int64_t columns, int32_t first_rank,
            int32_t end_rank, int32_t first_row, int32_t end_row) {
  shrink_rows<Dot, kWideRegisters ? 4 : 2>(group, x, columns, first_rank, end_rank, first_row,
                                           end_row);
}

// One tile and P rows, whose sums and values of t lie `to` and `t` on.
template <int P>
void expand_block(const uint16_t* b, int32_t rank, const float* t, int64_t ranks, float* to) {
  Lanes::F acc[P];
#pragma GCC unroll 8
  for (int p = 0; p < P; ++p) acc[p] = Lanes::set1(0.0f);
  const auto add = [&](const Lanes::F& w, int32_t k) {
#pragma GCC unroll 8
    for (int p = 0; p < P; ++p) acc[p] = Lanes::fma(w, Lanes::set1(t[p * ranks + k]), acc[p]);
  };
  int32_t k = 0;
  for (; k + 2 <= rank; k += 2, b += 2 * kTileRows) {
    add(Lanes::first_of_pairs(b), k);
    add(Lanes::second_of_pairs(b), k + 1);
  }
  if (k < rank) add(Lanes::first_of_pairs(b), k);
#pragma GCC unroll 8
  for (int p = 0; p < P; ++p)
    Lanes::store(to + p * kTileRows, Lanes::add(Lanes::load(to + p * kTileRows), acc[p]));
}

// One tile and `rows` rows: P at once, then half as many.
template <int P>
void expand_rows(const uint16_t* b, int32_t rank, const float* t, int64_t ranks, float* to,
                 int32_t rows) {
  for (; rows >= P; rows -= P, t += P * ranks, to += P * kTileRows)
    expand_block<P>(b, rank, t, ranks, to);
  if constexpr (P > 1)
    if (rows > 0) expand_rows<P / 2>(b, rank, t, ranks, to, rows);
}

inline void expand(const LowRankGroup& group, int32_t first_row, int32_t end_row, float* sums,
                   int64_t tile_stride, int64_t tile, int64_t tiles) {
  const int64_t ranks = group.factors.ranks;
  for (int32_t p = 0; p < group.factors.part_count; ++p) {
    const LowRankPart& part = group.factors.parts[p];
    const TileRange of = tiles_of_part(part, tile, tiles);
    for (int64_t i = of.begin; i < of.end; ++i) {
      expand_rows<kWideRegisters ? 8 : 2>(
          group.factors.b + part.b + i * part.b_step, part.rank,
          group.t + (first_row - group.first_row) * ranks + part.first, ranks,
          sums + (part.first_tile + (i << part.shift) - tile) * tile_stride, end_row - first_row);
    }
  }
}

}  // namespace
}  // namespace deltad::cpu
