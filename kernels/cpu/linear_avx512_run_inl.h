// The walk over output tiles, for a base product B (linear_avx512.cc, linear_avx512bf16.cc):
//   B::kLineColumns                    columns in a line of a panel
//   B::load(x, c)                      16 values of an activation, as fp32
//   B::store(out, c, v)                16 values of an activation, from fp32
//   B::few(w, tiles, x, columns, p, sums)          p ≤ kPanel rows: W from memory, all columns
//   B::many<T>(w, x, m, columns, sums, scratch)    more rows: block by block of columns
//   B::kManyBytes                                  scratch of many
// Included as linear_avx512_inl.h.
#pragma once

#include "kernels/cpu/linear_avx512_sign_inl.h"

namespace deltad::cpu {
namespace {

constexpr int64_t kFewTiles = 8;   // tiles of a chunk for up to kPanel rows
constexpr int64_t kManyTiles = 2;  // for more

inline size_t align64(size_t n) { return (n + 63) / 64 * 64; }

// prepared: panels of x if there are two rows or more; then, for each group, its rounded rows.
template <typename B>
int64_t lines_of(const LinearJob& job) {
  return (job.columns + B::kLineColumns - 1) / B::kLineColumns;
}

template <typename B>
size_t panel_bytes(const LinearJob& job) {
  return job.m < 2 ? 0 : static_cast<size_t>(lines_of<B>(job) * job.m * kLineBytes);
}

template <typename B>
size_t prepared_bytes(const LinearJob& job) {
  size_t bytes = panel_bytes<B>(job);
  for (int32_t g = 0; g < job.group_count; ++g)
    bytes += rounded_bytes(job.groups[g].end_row - job.groups[g].first_row, job.columns);
  return bytes;
}

// A unit is a row.
template <typename B>
int32_t prepare_units(const LinearJob& job) {
  return job.m < 2 && job.group_count == 0 ? 0 : job.m;
}

template <typename B>
void prepare(const LinearJob& job, void* prepared, int32_t first_row, int32_t end_row) {
  auto* at = static_cast<char*>(prepared);
  if (job.m >= 2)
    pack_rows(job.x, Panels(job.m, kPanel), lines_of<B>(job), at, first_row, end_row,
              [](char* to, const char* from) {
                _mm512_store_si512(to, _mm512_loadu_si512(from));
              });
  at += panel_bytes<B>(job);
  for (int32_t g = 0; g < job.group_count; ++g) {
    const LinearGroup& group = job.groups[g];
    const int32_t m = group.end_row - group.first_row;
    const Rounded to = rounded_at(at, m, job.columns);
    const int32_t begin = first_row > group.first_row ? first_row : group.first_row;
    const int32_t end = end_row < group.end_row ? end_row : group.end_row;
    for (int32_t r = begin; r < end; ++r)
      round_row(to, Panels(m, kPanel), r - group.first_row, job.columns,
                [&](int64_t c) { return B::load(job.x[r], c); });
    at += rounded_bytes(m, job.columns);
  }
}

template <typename B>
size_t worker_bytes(const LinearJob& job) {
  if (job.m <= kPanel) return static_cast<size_t>(kFewTiles * job.m * kTileRows) * sizeof(float);
  return static_cast<size_t>(2 * kManyTiles * job.m * kTileRows) * sizeof(float) + kExpandedBytes +
         B::kManyBytes;
}

// The signs of all groups on a chunk of tiles.
inline void add_signs(const LinearJob& job, char* rounded, Sums sums, int64_t tile, int64_t tiles,
                      float* scratch, char* bytes) {
  const int64_t tile_words = job.columns / kStepColumns;
  for (int32_t g = 0; g < job.group_count; ++g) {
    const LinearGroup& group = job.groups[g];
    const int32_t m = group.end_row - group.first_row;
    const Rounded x = rounded_at(rounded, m, job.columns);
    rounded += rounded_bytes(m, job.columns);
    const Sums y{sums.at + group.first_row * kTileRows, sums.tile_stride};
    for (int32_t l = 0; l < group.levels; ++l) {
      const SignTiles s{group.level[l].words + tile * tile_words,
                        group.level[l].alpha + tile * kTileRows, tile_words};
      if (m <= kPanel)
        kSignTiles[m](s, x, job.columns, y, tiles);
      else if (tiles == 2)
        sign_many<2>(s, x, m, job.columns, y, scratch, bytes);
      else
        sign_many<1>(s, x, m, job.columns, y, scratch, bytes);
    }
  }
}

template <typename B>
void run(const LinearJob& job, const void* prepared, void* scratch, int64_t first_tile,
         int64_t end_tile) {
  const auto* x = static_cast<const char*>(job.m < 2 ? job.x[0] : prepared);
  auto* rounded = static_cast<char*>(const_cast<void*>(prepared)) + panel_bytes<B>(job);
  const bool few = job.m <= kPanel;
  const int64_t chunk = few ? kFewTiles : kManyTiles;
  const Sums sums{static_cast<float*>(scratch), static_cast<int64_t>(job.m) * kTileRows};
  float* sign_scratch = sums.at + chunk * sums.tile_stride;
  auto* bytes = reinterpret_cast<char*>(sign_scratch + kManyTiles * sums.tile_stride);
  char* many_scratch = bytes + kExpandedBytes;
  for (int64_t tile = first_tile; tile < end_tile; tile += chunk) {
    const int64_t n = smaller(chunk, end_tile - tile);
    const uint16_t* w = job.w + tile * kTileRows * job.columns;
    if (few)
      B::few(w, n, x, job.columns, job.m, sums);
    else if (n == 2)
      B::template many<2>(w, x, job.m, job.columns, sums, many_scratch);
    else
      B::template many<1>(w, x, job.m, job.columns, sums, many_scratch);
    if (job.group_count > 0) add_signs(job, rounded, sums, tile, n, sign_scratch, bytes);
    write_out(job, sums, tile, n, B::store);
  }
}

template <typename B>
constexpr LinearKernels kernels_of() {
  return {prepared_bytes<B>, prepare_units<B>, prepare<B>, worker_bytes<B>, run<B>};
}

}  // namespace
}  // namespace deltad::cpu
