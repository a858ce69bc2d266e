// Activations as the vector kernels of the linear layer read them, and where they keep their sums.
// Included by files of one instruction set only; in an anonymous namespace, so that nothing
// compiled for a wide one can stand in for a function of a plain file.
//
// Activations lie in panels of a few rows: [line][row of the panel][64 bytes], a line being 64
// bytes of each row (16 dwords: 16 fp32, 32 bf16 or 64 int8 columns). A kernel broadcasts one dword
// to all outputs of a tile. A panel of one row is the row itself.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "kernels/cpu/layout.h"
#include "kernels/cpu/linear.h"
#include "kernels/cpu/low_rank_tiles_inl.h"

namespace deltad::cpu {
namespace {

constexpr int64_t kLineBytes = 64;
constexpr int64_t kLineDwords = 16;

inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

// m rows cut into panels of at most `most` rows, of nearly equal size.
struct Panels {
  int32_t m, count;
  Panels(int32_t rows, int32_t most) : m(rows), count((rows + most - 1) / most) {}
  int32_t first(int32_t i) const {
    return static_cast<int32_t>(static_cast<int64_t>(m) * i / count);
  }
  int32_t of(int32_t row) const {
    auto i = static_cast<int32_t>(static_cast<int64_t>(row) * count / m);
    while (first(i + 1) <= row) ++i;
    return i;
  }
};

// A loop over a few constants, written out in full: arrays that it indexes stay in registers.
#define DELTAD_EACH(i, n) _Pragma("GCC unroll 16") for (int i = 0; i < (n); ++i)
#define DELTAD_INLINE __attribute__((always_inline))

// Sums of a chunk of tiles: of row r and tile t of the chunk at at + t·tile_stride + r·16.
struct Sums {
  float* at;
  int64_t tile_stride;  // floats
};

// Memory that will be read soon.
struct Range {
  const char* at;
  int64_t bytes;
};

// What low-rank groups will read, to be fetched beside tiles [tile, tile + tiles): B of these
// tiles, then as large a share of what comes next as these tiles are of all. Calls add(Range) at
// most kLowRankRanges times a group.
constexpr int64_t kLowRankRanges = 2;
template <typename Add>
void for_low_rank_ranges(const LinearJob& job, int64_t tile, int64_t tiles, Add add) {
  if (job.low_rank_count == 0) return;
  for (int32_t g = 0; g < job.low_rank_count; ++g) {
    const LowRank& factors = job.low_rank[g].factors;
    int64_t first = INT64_MAX, last = 0;
    for (int32_t p = 0; p < factors.part_count; ++p) {
      const LowRankPart& part = factors.parts[p];
      const TileRange of = tiles_of_part(part, tile, tiles);
      if (of.begin == of.end) continue;
      first = smaller(first, part.b + of.begin * part.b_step);
      const int64_t after = part.b + (of.end - 1) * part.b_step + low_rank_tile_values(part.rank);
      if (after > last) last = after;
    }
    if (first < last)
      add(Range{reinterpret_cast<const char*>(factors.b + first),
                (last - first) * static_cast<int64_t>(sizeof *factors.b)});
  }
  constexpr int kShift = 20;
  const int64_t begin = (tile << kShift) / job.tiles, end = ((tile + tiles) << kShift) / job.tiles;
  for (int32_t g = 0; g < job.low_rank_count; ++g) {
    const LowRank& factors = job.low_rank[g].factors;
    const int64_t from = (factors.next_bytes * begin) >> kShift;
    const int64_t bytes = ((factors.next_bytes * end) >> kShift) - from;
    if (bytes > 0) add(Range{static_cast<const char*>(factors.next) + from, bytes});
  }
}

// B·t of all low-rank groups on tiles [tile, tile + tiles), to which `sums` belong.
inline void add_low_rank(const LinearJob& job, const LowRankKernels& kernels, Sums sums,
                         int64_t tile, int64_t tiles) {
  if (job.await_t != nullptr) job.await_t(job.await_context);
  for (int32_t g = 0; g < job.low_rank_count; ++g) {
    const LowRankGroup& group = job.low_rank[g];
    kernels.expand(group, group.first_row, group.end_row, sums.at + group.first_row * kTileRows,
                   sums.tile_stride, tile, tiles);
  }
}

// Copies rows [first_row, end_row) of a job into its panels of `lines` lines. Copy: how 64 bytes
// are copied.
template <typename Copy>
void pack_rows(const void* const* x, Panels panels, int64_t lines, char* to, int32_t first_row,
               int32_t end_row, Copy copy) {
  for (int32_t r = first_row; r < end_row; ++r) {
    const int32_t panel = panels.of(r), first = panels.first(panel);
    const int64_t p = panels.first(panel + 1) - first;
    char* at = to + (first * lines + (r - first)) * kLineBytes;
    const auto* from = static_cast<const char*>(x[r]);
    for (int64_t l = 0; l < lines; ++l, at += p * kLineBytes, from += kLineBytes) copy(at, from);
  }
}

}  // namespace
}  // namespace deltad::cpu
