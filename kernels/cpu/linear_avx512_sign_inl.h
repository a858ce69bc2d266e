// The sign product on AVX-512 with VNNI: activations rounded to int8 with a scale each 128 columns,
// sums in int32 (exact), scaled and added in fp32 block by block. Included as linear_avx512_inl.h.
//
// A word of 64 sign bits (16 outputs × 4 columns) is a byte mask: it turns into bytes of 2 (+) or
// 0 (−), and Σ ±q = Σ 2q over + … minus Σ q, with which the sum begins.
#pragma once

#include "kernels/cpu/linear_avx512_inl.h"

namespace deltad::cpu {
namespace {

constexpr int64_t kStepColumns = 4;  // columns of one word of signs, bytes of one dword of q
constexpr int64_t kLineColumns = kLineDwords * kStepColumns;
constexpr int64_t kBlockLines = kScaleColumns / kLineColumns;
constexpr int64_t kWordLines = kLineDwords * 8 / kLineBytes;  // lines of signs to a line of q
constexpr int64_t kBlockSteps = kScaleColumns / kStepColumns;
static_assert(kScaleColumns % kLineColumns == 0);

// Sums in int32. A type of 16 lanes, not __m512i: with that GCC 12 copies every sum to and from
// memory.
using Lanes = int32_t __attribute__((vector_size(64), may_alias));

inline Lanes dot_bytes(Lanes sum, __m512i unsigned_bytes, __m512i signed_bytes) {
  return reinterpret_cast<Lanes>(
      _mm512_dpbusd_epi32(reinterpret_cast<__m512i>(sum), unsigned_bytes, signed_bytes));
}

inline __m512 as_floats(Lanes sum) { return _mm512_cvtepi32_ps(reinterpret_cast<__m512i>(sum)); }

inline int64_t scale_blocks(int64_t columns) {
  return (columns + kScaleColumns - 1) / kScaleColumns;
}

// The rounded activations of a group of m rows.
struct Rounded {
  char* q;         // panels
  float* scale;    // panels of [block][row of the panel]
  int32_t* start;  // −Σ q of the block, as scale
};

inline size_t rounded_bytes(int32_t m, int64_t columns) {
  const int64_t blocks = scale_blocks(columns);
  return static_cast<size_t>(m * blocks * (kBlockLines * kLineBytes) +
                             2 * ((m * blocks * 4 + 63) / 64 * 64));
}

inline Rounded rounded_at(char* at, int32_t m, int64_t columns) {
  const int64_t blocks = scale_blocks(columns);
  const int64_t scales = (m * blocks * 4 + 63) / 64 * 64;
  char* after = at + m * blocks * (kBlockLines * kLineBytes);
  return {at, reinterpret_cast<float*>(after), reinterpret_cast<int32_t*>(after + scales)};
}

// Rounds one row of `columns` values, read 16 at a time by load(column), into its panel.
template <typename Load>
void round_row(const Rounded& to, Panels panels, int32_t row, int64_t columns, Load load) {
  const int64_t blocks = scale_blocks(columns);
  const int32_t panel = panels.of(row), first = panels.first(panel);
  const int32_t p = panels.first(panel + 1) - first;
  char* q = to.q + first * blocks * kBlockLines * kLineBytes + (row - first) * kLineBytes;
  for (int64_t b = 0; b < blocks; ++b) {
    __m512 v[kScaleColumns / 16];
    __m512 top = _mm512_setzero_ps();
    for (int64_t i = 0; i < kScaleColumns / 16; ++i) {
      const int64_t c = b * kScaleColumns + i * 16;
      v[i] = c < columns ? load(c) : _mm512_setzero_ps();
      top = _mm512_max_ps(top, _mm512_abs_ps(v[i]));
    }
    const float largest = _mm512_reduce_max_ps(top);
    const bool any = largest > 1e-30f;
    const __m512 inverse = _mm512_set1_ps(any ? 127.0f / largest : 0.0f);
    __m512i sum = _mm512_setzero_si512();
    for (int64_t i = 0; i < kScaleColumns / 16; ++i) {
      const __m512i n = _mm512_cvtps_epi32(_mm512_mul_ps(v[i], inverse));
      const __m128i bytes = _mm512_cvtsepi32_epi8(n);
      sum = _mm512_add_epi32(sum, _mm512_cvtepi8_epi32(bytes));
      char* line = q + (b * kBlockLines + i / 4) * p * kLineBytes;
      _mm_store_si128(reinterpret_cast<__m128i*>(line) + i % 4, bytes);
    }
    const int64_t at = first * blocks + b * p + (row - first);
    to.scale[at] = any ? largest / 127.0f : 0.0f;
    to.start[at] = -_mm512_reduce_add_epi32(sum);
  }
}

// What one level of a group does to a run of tiles.
struct SignTiles {
  const uint64_t* words;  // of the first tile
  const float* alpha;     // of the first tile
  int64_t tile_words;
  const char* then;  // signs that are wanted after these tiles, for the first-level cache
};

// y += α·f, left untouched where the tile's α are all 0 (parts that a variant does not change).
inline void add_scaled(float* y, const float* alpha, __m512 f) {
  const __m512 a = _mm512_loadu_ps(alpha);
  if (_mm512_cmp_ps_mask(a, _mm512_setzero_ps(), _CMP_NEQ_UQ) == 0) return;
  _mm512_store_ps(y, _mm512_fmadd_ps(a, f, _mm512_load_ps(y)));
}

inline bool all_zero(const float* alpha, int64_t tiles) {
  __mmask16 any = 0;
  for (int64_t t = 0; t < tiles; ++t)
    any |= _mm512_cmp_ps_mask(_mm512_loadu_ps(alpha + t * kTileRows), _mm512_setzero_ps(),
                              _CMP_NEQ_UQ);
  return any == 0;
}

// Adds α·(S·x) of T tiles and the P rows of one panel, signs straight from memory.
template <int T, int P>
void sign_panel(const SignTiles& s, const Rounded& x, int64_t columns, Sums sums, Errand errand) {
  if (all_zero(s.alpha, T)) return;
  const __m512i two = _mm512_set1_epi8(2);
  __m512 f[T][P];
  DELTAD_EACH(t, T) {
    DELTAD_EACH(p, P) { f[t][p] = _mm512_setzero_ps(); }
  }
  const char* q = x.q;
  const char* then = s.then;
  const uint64_t* words = s.words;
  const int32_t* start = x.start;
  const float* scale = x.scale;
  for (int64_t left = columns / kStepColumns; left > 0; left -= kBlockSteps) {
    Lanes acc[T][P];
    DELTAD_EACH(p, P) {
      const Lanes v = reinterpret_cast<Lanes>(_mm512_set1_epi32(start[p]));
      DELTAD_EACH(t, T) { acc[t][p] = v; }
    }
    const auto line = [&](int64_t n) DELTAD_INLINE {
      errand.line();
      for (int i = 0; i < T * kWordLines; ++i) _mm_prefetch(then + i * kLineBytes, _MM_HINT_T0);
      then += T * kWordLines * kLineBytes;
#pragma GCC unroll 2
      for (int64_t i = 0; i < n; ++i) {
        __m512i bytes[T];
        DELTAD_EACH(t, T) { bytes[t] = _mm512_maskz_mov_epi8(words[t * s.tile_words + i], two); }
        DELTAD_EACH(p, P) {
          const __m512i v = broadcast_dword(q + p * kLineBytes + 4 * i);
          DELTAD_EACH(t, T) { acc[t][p] = dot_bytes(acc[t][p], bytes[t], v); }
        }
      }
      q += P * kLineBytes;
      words += kLineDwords;
    };
    const int64_t steps = smaller(left, kBlockSteps);
    for (int64_t i = 0; i < steps / kLineDwords; ++i) line(kLineDwords);
    if (steps % kLineDwords != 0) line(steps % kLineDwords);
    DELTAD_EACH(p, P) {
      const __m512 by = _mm512_set1_ps(scale[p]);
      DELTAD_EACH(t, T) { f[t][p] = _mm512_fmadd_ps(as_floats(acc[t][p]), by, f[t][p]); }
    }
    start += P;
    scale += P;
  }
  DELTAD_EACH(t, T) {
    DELTAD_EACH(p, P) {
      add_scaled(sums.at + t * sums.tile_stride + p * kTileRows, s.alpha + t * kTileRows, f[t][p]);
    }
  }
}

// Lines fetched at most for each tile and row in a line of q: about what memory delivers meanwhile.
constexpr int64_t kMostLines = 2;

// As many tiles at once as the registers hold: T·P sums in int32 and as many in fp32. Fetches
// about `lines` on the way.
template <int P>
void sign_tiles(SignTiles s, const Rounded& x, int64_t columns, Sums sums, int64_t tiles,
                Fetch& fetch, int64_t lines) {
  constexpr int kWide = P == 1 ? 8 : P <= 3 ? 4 : 2;
  const int64_t passes = tiles / kWide + tiles % kWide;
  const int64_t wanted = lines / (passes * (columns / kLineColumns + 1)) + (lines > 0);
  const Errand errand{&fetch, smaller(wanted, kMostLines * kWide * P)};
  const char* const then = s.then;
  const auto next = [&](int n) {
    s.words += n * s.tile_words;
    s.alpha += n * kTileRows;
    sums.at += n * sums.tile_stride;
    tiles -= n;
  };
  while (tiles >= kWide) {
    s.then = tiles > kWide ? reinterpret_cast<const char*>(s.words + kWide * s.tile_words) : then;
    sign_panel<kWide, P>(s, x, columns, sums, errand);
    next(kWide);
  }
  while (tiles > 0) {
    s.then = tiles > 1 ? reinterpret_cast<const char*>(s.words + s.tile_words) : then;
    sign_panel<1, P>(s, x, columns, sums, errand);
    next(1);
  }
}

using SignTilesFn = void (*)(SignTiles, const Rounded&, int64_t, Sums, int64_t, Fetch&, int64_t);
constexpr int32_t kDirectRows = 7;  // more rows of a group share bytes made once
constexpr SignTilesFn kSignTiles[kDirectRows + 1] = {nullptr,       sign_tiles<1>, sign_tiles<2>,
                                                     sign_tiles<3>, sign_tiles<4>, sign_tiles<5>,
                                                     sign_tiles<6>, sign_tiles<7>};

// ---- many rows: the bytes of two tiles and one block of columns are made once, in L1 ----------

constexpr int64_t kExpandedBytes = 2 * kBlockSteps * 64;

// bytes[step][tile][64] of T tiles.
template <int T>
void expand_signs(const SignTiles& s, int64_t first_step, int64_t steps, char* bytes) {
  const __m512i two = _mm512_set1_epi8(2);
  for (int64_t i = 0; i < steps; ++i)
    for (int t = 0; t < T; ++t)
      _mm512_store_si512(bytes + (i * T + t) * 64,
                         _mm512_maskz_mov_epi8(s.words[t * s.tile_words + first_step + i], two));
}

// f += scale·(Σ ±q) over one block, for T tiles and the P rows of a panel; f[tile][row][16] in
// memory. q, start, scale are those of the block.
template <int T, int P>
void sign_block(const char* bytes, const char* q, const int32_t* start, const float* scale,
                int64_t steps, bool first_block, Sums f) {
  Lanes acc[T][P];
  DELTAD_EACH(p, P) {
    const Lanes v = reinterpret_cast<Lanes>(_mm512_set1_epi32(start[p]));
    DELTAD_EACH(t, T) { acc[t][p] = v; }
  }
  const auto line = [&](int64_t n) DELTAD_INLINE {
    for (int64_t i = 0; i < n; ++i, bytes += T * 64) {
      __m512i b[T];
      DELTAD_EACH(t, T) { b[t] = _mm512_load_si512(bytes + t * 64); }
      DELTAD_EACH(p, P) {
        const __m512i v = broadcast_dword(q + p * kLineBytes + 4 * i);
        DELTAD_EACH(t, T) { acc[t][p] = dot_bytes(acc[t][p], b[t], v); }
      }
    }
    q += P * kLineBytes;
  };
  for (int64_t i = 0; i < steps / kLineDwords; ++i) line(kLineDwords);
  if (steps % kLineDwords != 0) line(steps % kLineDwords);
  DELTAD_EACH(p, P) {
    const __m512 by = _mm512_set1_ps(scale[p]);
    DELTAD_EACH(t, T) {
      float* to = f.at + t * f.tile_stride + p * kTileRows;
      const __m512 before = first_block ? _mm512_setzero_ps() : _mm512_load_ps(to);
      _mm512_store_ps(to, _mm512_fmadd_ps(as_floats(acc[t][p]), by, before));
    }
  }
}

template <int T>
using SignBlockFn = void (*)(const char*, const char*, const int32_t*, const float*, int64_t, bool,
                             Sums);
template <int T>
constexpr SignBlockFn<T> kSignBlock[kPanel + 1] = {
    nullptr,           sign_block<T, 1>,  sign_block<T, 2>,  sign_block<T, 3>,  sign_block<T, 4>,
    sign_block<T, 5>,  sign_block<T, 6>,  sign_block<T, 7>,  sign_block<T, 8>,  sign_block<T, 9>,
    sign_block<T, 10>, sign_block<T, 11>, sign_block<T, 12>, sign_block<T, 13>, sign_block<T, 14>};

// Adds α·(S·x) of T tiles for the m rows of a group. scratch: T·m·16 floats, then the bytes.
template <int T>
void sign_many(const SignTiles& s, const Rounded& x, int32_t m, int64_t columns, Sums sums,
               float* scratch, char* bytes) {
  if (all_zero(s.alpha, T)) return;
  const Panels panels(m, kPanel);
  const int64_t blocks = scale_blocks(columns), steps = columns / kStepColumns;
  const int64_t stride = static_cast<int64_t>(m) * kTileRows;
  for (int64_t b = 0; b < blocks; ++b) {
    const int64_t n = smaller(kBlockSteps, steps - b * kBlockSteps);
    expand_signs<T>(s, b * kBlockSteps, n, bytes);
    for (int32_t i = 0; i < panels.count; ++i) {
      const int32_t first = panels.first(i), p = panels.first(i + 1) - first;
      const int64_t at = first * blocks + b * p;
      kSignBlock<T>[p](bytes, x.q + at * kBlockLines * kLineBytes, x.start + at, x.scale + at, n,
                       b == 0, {scratch + first * kTileRows, stride});
    }
  }
  for (int t = 0; t < T; ++t)
    for (int32_t r = 0; r < m; ++r)
      add_scaled(sums.at + t * sums.tile_stride + r * kTileRows, s.alpha + t * kTileRows,
                 _mm512_load_ps(scratch + t * stride + r * kTileRows));
}

}  // namespace
}  // namespace deltad::cpu
