// The steps of low_rank.h, written on Lanes; included once by each low_rank_ISA.cc after its Lanes,
// and local to that file (see lanes_avx512.h for why).
//
// Dot: how A meets x: kStep columns at a time, acc += A[k, c…]·x[c…], lane by lane.
#pragma once

#include <cstdint>

#include "kernels/cpu/layout.h"
#include "kernels/cpu/low_rank.h"

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

template <typename Dot, int P>
void shrink_rows(const LowRankGroup& group, const void* const* x, int64_t columns,
                 int32_t first_rank, int32_t end_rank, int32_t row) {
  constexpr int kRanks = Lanes::kRegisters >= 32 && P == 1 ? 8 : Lanes::kRegisters >= 32 ? 4 : 2;
  int32_t k = first_rank;
  for (; k + kRanks <= end_rank; k += kRanks)
    shrink_block<Dot, kRanks, P>(group, x, columns, k, row);
  for (; k < end_rank; ++k) shrink_block<Dot, 1, P>(group, x, columns, k, row);
}

template <typename Dot>
void shrink(const LowRankGroup& group, const void* const* x, int64_t columns, int32_t first_rank,
            int32_t end_rank, int32_t first_row, int32_t end_row) {
  constexpr int kRows = Lanes::kRegisters >= 32 ? 4 : 2;
  int32_t r = first_row;
  for (; r + kRows <= end_row; r += kRows)
    shrink_rows<Dot, kRows>(group, x, columns, first_rank, end_rank, r);
  for (; r < end_row; ++r) shrink_rows<Dot, 1>(group, x, columns, first_rank, end_rank, r);
}

// One tile and P rows, whose sums and values of t lie `to` and `t` on.
template <int P>
void expand_block(const uint16_t* b, int32_t rank, const float* t, int64_t ranks, float* to) {
  Lanes::F acc[P];
#pragma GCC unroll 8
  for (int p = 0; p < P; ++p) acc[p] = Lanes::set1(0.0f);
  for (int32_t k = 0; k < rank; ++k, b += kTileRows) {
    const Lanes::F w = Lanes::load_bf16(b);
#pragma GCC unroll 8
    for (int p = 0; p < P; ++p) acc[p] = Lanes::fma(w, Lanes::set1(t[p * ranks + k]), acc[p]);
  }
#pragma GCC unroll 8
  for (int p = 0; p < P; ++p)
    Lanes::store(to + p * kTileRows, Lanes::add(Lanes::load(to + p * kTileRows), acc[p]));
}

inline void expand(const LowRankGroup& group, int32_t first_row, int32_t end_row, float* sums,
                   int64_t tile_stride, int64_t tile, int64_t tiles) {
  constexpr int kRows = Lanes::kRegisters >= 32 ? 8 : 2;
  const int64_t ranks = group.factors.ranks;
  for (int64_t i = 0; i < tiles; ++i) {
    const LowRankTile& of = group.factors.tiles[tile + i];
    if (of.rank == 0) continue;
    const uint16_t* b = group.factors.b + of.at;
    const float* t = group.t + (first_row - group.first_row) * ranks + of.first;
    float* to = sums + i * tile_stride;
    int32_t r = first_row;
    for (; r + kRows <= end_row; r += kRows, t += kRows * ranks, to += kRows * kTileRows)
      expand_block<kRows>(b, of.rank, t, ranks, to);
    for (; r < end_row; ++r, t += ranks, to += kTileRows) expand_block<1>(b, of.rank, t, ranks, to);
  }
}

}  // namespace
}  // namespace deltad::cpu
