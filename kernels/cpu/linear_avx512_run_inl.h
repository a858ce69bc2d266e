// The walk over output tiles, for a base product B (linear_avx512.cc, linear_avx512bf16.cc):
//   B::kLineColumns                    columns in a line of a panel
//   B::load(x, c)                      16 values of an activation, as fp32
//   B::store(out, c, v)                16 values of an activation, from fp32
//   B::four_columns<T>(acc, w, tile, x)   four columns of T tiles and one row, of B::kColumnBytes
//   B::streams(rows)                   tiles whose W is read side by side, at most kMostStreams
//   B::few(w, tiles, x, columns, p, sums, fetch)   p ≤ kPanel rows: W from memory, all columns
//   B::many<T>(w, x, panels, columns, sums, fetch, scratch)   more: block by block of columns
//   B::kManyBytes                                  scratch of many
//   B::low_rank()                      the low-rank kernels of the same instruction set
// Included as linear_avx512_inl.h.
#pragma once

#include "kernels/cpu/linear_avx512_fused_inl.h"

namespace deltad::cpu {
namespace {

constexpr int32_t kFewRows = 64;   // up to so many rows a chunk has
constexpr int64_t kFewTiles = 8;   // tiles, long enough for each variant's stream of sign bits,
constexpr int64_t kManyTiles = 2;  // and for more, so that its sums stay in the cache, so many

// The sign bits of so many levels are fetched during the base product of their chunk, those of the
// others during the sign products before them: so both read about as fast as memory delivers.
constexpr int64_t kEarlyLevels = 4;

// Bytes of the next chunk's W that are fetched during the sign products, when memory would idle:
// behind those that the base product has called for (Ahead).
constexpr int64_t kNextBytes = 8192;
constexpr int64_t kMostStreams = 8;

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
              [](char* to, const char* from) { _mm512_store_si512(to, _mm512_loadu_si512(from)); });
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

inline int64_t chunk_tiles(const LinearJob& job) {
  return job.m <= kFewRows ? kFewTiles : kManyTiles;
}

inline int64_t levels_of(const LinearJob& job) {
  int64_t n = 0;
  for (int32_t g = 0; g < job.group_count; ++g) n += job.groups[g].levels;
  return n;
}

// Scratch of a worker: the sums of a chunk; those of two tiles' signs; sign bytes; what B needs;
// ranges to fetch.
template <typename B>
size_t worker_bytes(const LinearJob& job) {
  return static_cast<size_t>((chunk_tiles(job) + 2) * job.m * kTileRows) * sizeof(float) +
         kExpandedBytes + B::kManyBytes +
         static_cast<size_t>(kLowRankRanges * job.low_rank_count + levels_of(job) + kMostStreams) *
             sizeof(Range);
}

struct Scratch {
  Sums sums;
  float* sign_sums;
  char* bytes;
  char* many;
  Range* ranges;
};

template <typename B>
Scratch scratch_at(const LinearJob& job, void* at) {
  Scratch s{};
  s.sums = {static_cast<float*>(at), static_cast<int64_t>(job.m) * kTileRows};
  s.sign_sums = s.sums.at + chunk_tiles(job) * s.sums.tile_stride;
  s.bytes = reinterpret_cast<char*>(s.sign_sums + 2 * s.sums.tile_stride);
  s.many = s.bytes + kExpandedBytes;
  s.ranges = reinterpret_cast<Range*>(s.many + B::kManyBytes);
  return s;
}

// The signs of all groups on a chunk of tiles; fetches `rest` on the way.
inline void add_signs(const LinearJob& job, char* rounded, const Scratch& scratch, int64_t tile,
                      int64_t tiles, int64_t level_count, Fetch& rest) {
  const int64_t tile_words = job.columns / kStepColumns;
  const int64_t lines = rest.left() / level_count + (rest.left() > 0);
  int64_t done = 0;
  for (int32_t g = 0; g < job.group_count; ++g) {
    const LinearGroup& group = job.groups[g];
    const int32_t m = group.end_row - group.first_row;
    const Rounded x = rounded_at(rounded, m, job.columns);
    rounded += rounded_bytes(m, job.columns);
    Sums y{scratch.sums.at + group.first_row * kTileRows, scratch.sums.tile_stride};
    for (int32_t l = 0; l < group.levels; ++l) {
      SignTiles s{group.level[l].words + tile * tile_words, group.level[l].alpha + tile * kTileRows,
                  tile_words, nullptr};
      ++done;
      s.then = done < level_count ? scratch.ranges[done].at : scratch.ranges[0].at;
      if (m <= kDirectRows) {
        kSignTiles[m](s, x, job.columns, y, tiles, rest, lines);
        continue;
      }
      Sums at = y;
      int64_t left = tiles;
      for (; left >= 2; left -= 2, at.at += 2 * at.tile_stride) {
        sign_many<2>(s, x, m, job.columns, at, scratch.sign_sums, scratch.bytes);
        s.words += 2 * tile_words;
        s.alpha += 2 * kTileRows;
      }
      if (left > 0) sign_many<1>(s, x, m, job.columns, at, scratch.sign_sums, scratch.bytes);
    }
  }
}

// W·x of a chunk; fetches low-rank factors and the first of its sign bits on the way.
template <typename B>
void add_base(const LinearJob& job, const uint16_t* w, const char* x, int64_t tiles,
              const Scratch& scratch, Fetch& first) {
  if (job.m <= kPanel) {
    B::few(w, tiles, x, job.columns, job.m, scratch.sums, first);
    return;
  }
  const Panels panels(job.m, kPanel);
  Sums at = scratch.sums;
  for (; tiles >= 2; tiles -= 2, at.at += 2 * at.tile_stride, w += 2 * kTileRows * job.columns)
    B::template many<2>(w, x, panels, job.columns, at, first, scratch.many);
  if (tiles > 0) B::template many<1>(w, x, panels, job.columns, at, first, scratch.many);
}

// What the base product of the next chunk reads first, in `streams` tiles side by side.
inline int64_t next_weights(const uint16_t* w, int64_t columns, int64_t streams, Range* to) {
  for (int64_t i = 0; i < streams; ++i)
    to[i] = {reinterpret_cast<const char*>(w + i * kTileRows * columns) + kAheadBytes / streams,
             kNextBytes / streams};
  return streams;
}

// Whether base and signs are worked out together (linear_avx512_fused_inl.h).
inline bool is_fused(const LinearJob& job) {
  return job.m == 1 && job.group_count == 1 && job.groups[0].levels == 1;
}

template <typename B>
void run_fused(const LinearJob& job, char* rounded, Sums sums, int64_t first_tile,
               int64_t end_tile) {
  const SignLevel& level = job.groups[0].level[0];
  const Rounded x = rounded_at(rounded, 1, job.columns);
  const int64_t tile_words = job.columns / kStepColumns;
  for (int64_t tile = first_tile; tile < end_tile; tile += kFewTiles) {
    const int64_t n = smaller(kFewTiles, end_tile - tile);
    fused_tiles<B, kFusedTiles>(
        job.w + tile * kTileRows * job.columns, static_cast<const char*>(job.x[0]),
        {level.words + tile * tile_words, level.alpha + tile * kTileRows, tile_words, nullptr}, x,
        job.columns, sums, n);
    add_low_rank(job, B::low_rank(), sums, tile, n);
    write_out(job, sums, tile, n, B::store);
  }
}

template <typename B>
void run(const LinearJob& job, const void* prepared, void* scratch_memory, int64_t first_tile,
         int64_t end_tile) {
  const auto* x = static_cast<const char*>(job.m < 2 ? job.x[0] : prepared);
  auto* rounded = static_cast<char*>(const_cast<void*>(prepared)) + panel_bytes<B>(job);
  Scratch scratch = scratch_at<B>(job, scratch_memory);
  Range* const ranges = scratch.ranges;
  if (is_fused(job)) return run_fused<B>(job, rounded, scratch.sums, first_tile, end_tile);
  const int64_t chunk = chunk_tiles(job);
  const int64_t tile_words = job.columns / kStepColumns;
  for (int64_t tile = first_tile; tile < end_tile; tile += chunk) {
    const int64_t n = smaller(chunk, end_tile - tile);
    const uint16_t* w = job.w + tile * kTileRows * job.columns;
    // Factors first, then signs.
    int64_t factors = 0;
    for_low_rank_ranges(job, tile, n, [&](Range range) { ranges[factors++] = range; });
    scratch.ranges = ranges + factors;
    int64_t count = 0;
    for (int32_t g = 0; g < job.group_count; ++g) {
      for (int32_t l = 0; l < job.groups[g].levels; ++l) {
        const SignLevel& level = job.groups[g].level[l];
        for (int64_t t = tile; t < tile + n; ++t)
          _mm_prefetch(level.alpha + t * kTileRows, _MM_HINT_T1);
        scratch.ranges[count++] = {reinterpret_cast<const char*>(level.words + tile * tile_words),
                                   n * tile_words * static_cast<int64_t>(sizeof *level.words)};
      }
    }
    const int64_t early = smaller(count, kEarlyLevels);
    const int64_t next = count == 0 ? 0
                                    : next_weights(w + n * kTileRows * job.columns, job.columns,
                                                   smaller(B::streams(job.m), end_tile - tile - n),
                                                   scratch.ranges + count);
    Fetch first(ranges, factors + early), rest(scratch.ranges + early, count - early + next);
    add_base<B>(job, w, x, n, scratch, first);
    if (count > 0) add_signs(job, rounded, scratch, tile, n, count, rest);
    add_low_rank(job, B::low_rank(), scratch.sums, tile, n);
    write_out(job, scratch.sums, tile, n, B::store);
  }
}

template <typename B>
constexpr LinearKernels kernels_of() {
  return {prepared_bytes<B>, prepare_units<B>, prepare<B>, worker_bytes<B>, run<B>};
}

}  // namespace
}  // namespace deltad::cpu
