// The linear layer on AVX-512 without bf16 arithmetic: base product in fp32, its bf16 weights
// widened on the way (exact), activations in fp32.
#include "kernels/cpu/linear_avx512_run_inl.h"
#include "kernels/cpu/linear_isa.h"
#include "kernels/cpu/low_rank_isa.h"

namespace deltad::cpu {
namespace {

constexpr int64_t kBlockColumns = 128;  // of W widened into L1 at a time

inline __m512 even_columns(const uint16_t* w) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_load_si512(w), 16));
}
inline __m512 odd_columns(const uint16_t* w) {
  return _mm512_castsi512_ps(_mm512_maskz_loadu_epi16(0xaaaaaaaa, w));
}

// W·x of T tiles and one panel of P rows, W straight from memory: lines of the T tiles that will be
// needed soon, in these tiles or the T after them, are called for on the way.
template <int T, int P>
void base_panel(const uint16_t* w, const char* x, int64_t columns, Sums sums, Errand errand) {
  const int64_t tile = columns * kTileRows;
  Ahead<T> ahead(w, columns);
  __m512 acc[T][P];
  DELTAD_EACH(t, T) {
    DELTAD_EACH(p, P) { acc[t][p] = _mm512_setzero_ps(); }
  }
  const auto line = [&](int64_t n) DELTAD_INLINE {
    errand.line();
#pragma GCC unroll 2
    for (int64_t i = 0; i < n; i += 2, w += 2 * kTileRows) {
      DELTAD_EACH(t, T) { ahead.prefetch(t, i); }
      __m512 v[T];
      DELTAD_EACH(t, T) { v[t] = even_columns(w + t * tile); }
      DELTAD_EACH(p, P) {
        const __m512 b = broadcast_float(x + p * kLineBytes + 4 * i);
        DELTAD_EACH(t, T) { acc[t][p] = _mm512_fmadd_ps(v[t], b, acc[t][p]); }
      }
      DELTAD_EACH(t, T) { v[t] = odd_columns(w + t * tile); }
      DELTAD_EACH(p, P) {
        const __m512 b = broadcast_float(x + p * kLineBytes + 4 * i + 4);
        DELTAD_EACH(t, T) { acc[t][p] = _mm512_fmadd_ps(v[t], b, acc[t][p]); }
      }
    }
    x += P * kLineBytes;
    ahead.advance(n);
  };
  for (int64_t i = 0; i < columns / kLineDwords; ++i) line(kLineDwords);
  if (columns % kLineDwords != 0) line(columns % kLineDwords);
  DELTAD_EACH(t, T) {
    DELTAD_EACH(p, P) {
      _mm512_store_ps(sums.at + t * sums.tile_stride + p * kTileRows, acc[t][p]);
    }
  }
}

// Tiles whose W is read side by side by so many rows: as many as the registers hold.
constexpr int streams_of(int32_t rows) { return rows <= 2 ? 8 : rows <= 6 ? 4 : 2; }

template <int P>
void base_tiles(const uint16_t* w, int64_t tiles, const char* x, int64_t columns, Sums sums,
                Fetch& fetch) {
  constexpr int kWide = streams_of(P);
  const int64_t tile = columns * kTileRows;
  const Errand errand{&fetch, fetch.rate((tiles / kWide + tiles % kWide) *
                                         ((columns + kLineDwords - 1) / kLineDwords))};
  for (; tiles >= kWide; tiles -= kWide, w += kWide * tile, sums.at += kWide * sums.tile_stride)
    base_panel<kWide, P>(w, x, columns, sums, errand);
  for (; tiles > 0; --tiles, w += tile, sums.at += sums.tile_stride)
    base_panel<1, P>(w, x, columns, sums, errand);
}

using BaseTilesFn = void (*)(const uint16_t*, int64_t, const char*, int64_t, Sums, Fetch&);
constexpr BaseTilesFn kBaseTiles[kPanel + 1] = {
    nullptr,        base_tiles<1>,  base_tiles<2>,  base_tiles<3>,  base_tiles<4>,
    base_tiles<5>,  base_tiles<6>,  base_tiles<7>,  base_tiles<8>,  base_tiles<9>,
    base_tiles<10>, base_tiles<11>, base_tiles<12>, base_tiles<13>, base_tiles<14>};

// wide[column][tile][16] fp32 of T tiles.
template <int T>
void widen_block(const uint16_t* w, int64_t tile, int64_t columns, float* wide) {
  for (int64_t c = 0; c < columns; c += 2)
    for (int t = 0; t < T; ++t) {
      const uint16_t* both = w + t * tile + c * kTileRows;
      _mm512_store_ps(wide + (c * T + t) * kTileRows, even_columns(both));
      _mm512_store_ps(wide + ((c + 1) * T + t) * kTileRows, odd_columns(both));
    }
}

// sums (+)= W·x over one block of columns, for T tiles and the P rows of a panel.
template <int T, int P>
void base_block(const float* wide, const char* x, int64_t columns, bool first_block, Sums sums,
                Errand errand) {
  __m512 acc[T][P];
  DELTAD_EACH(t, T) {
    DELTAD_EACH(p, P) {
      acc[t][p] = first_block ? _mm512_setzero_ps()
                              : _mm512_load_ps(sums.at + t * sums.tile_stride + p * kTileRows);
    }
  }
  const auto line = [&](int64_t n) DELTAD_INLINE {
    errand.line();
    for (int64_t i = 0; i < n; ++i, wide += T * kTileRows) {
      __m512 v[T];
      DELTAD_EACH(t, T) { v[t] = _mm512_load_ps(wide + t * kTileRows); }
      DELTAD_EACH(p, P) {
        const __m512 b = broadcast_float(x + p * kLineBytes + 4 * i);
        DELTAD_EACH(t, T) { acc[t][p] = _mm512_fmadd_ps(v[t], b, acc[t][p]); }
      }
    }
    x += P * kLineBytes;
  };
  for (int64_t i = 0; i < columns / kLineDwords; ++i) line(kLineDwords);
  if (columns % kLineDwords != 0) line(columns % kLineDwords);
  DELTAD_EACH(t, T) {
    DELTAD_EACH(p, P) {
      _mm512_store_ps(sums.at + t * sums.tile_stride + p * kTileRows, acc[t][p]);
    }
  }
}

using BaseBlockFn = void (*)(const float*, const char*, int64_t, bool, Sums, Errand);
template <int T>
constexpr BaseBlockFn kBaseBlock[kPanel + 1] = {
    nullptr,           base_block<T, 1>,  base_block<T, 2>,  base_block<T, 3>,  base_block<T, 4>,
    base_block<T, 5>,  base_block<T, 6>,  base_block<T, 7>,  base_block<T, 8>,  base_block<T, 9>,
    base_block<T, 10>, base_block<T, 11>, base_block<T, 12>, base_block<T, 13>, base_block<T, 14>};

struct BaseFp32 {
  static constexpr int64_t kLineColumns = 16;
  static constexpr int64_t kColumnBytes = 4;
  static constexpr size_t kManyBytes = 2 * kBlockColumns * kTileRows * sizeof(float);

  static const LowRankKernels& low_rank() { return kLowRankAvx512; }
  static __m512 load(const void* x, int64_t c) {
    return _mm512_loadu_ps(static_cast<const float*>(x) + c);
  }
  static void store(void* out, int64_t c, __m512 v) {
    _mm512_storeu_ps(static_cast<float*>(out) + c, v);
  }
  template <int T>
  static DELTAD_INLINE void four_columns(__m512* acc, const uint16_t* w, int64_t tile,
                                         const char* x) {
    DELTAD_EACH(i, 2) {
      const __m512 even = broadcast_float(x + 8 * i), odd = broadcast_float(x + 8 * i + 4);
      DELTAD_EACH(t, T) {
        const uint16_t* pair = w + t * tile + 2 * i * kTileRows;
        acc[t] = _mm512_fmadd_ps(even_columns(pair), even, acc[t]);
        acc[t] = _mm512_fmadd_ps(odd_columns(pair), odd, acc[t]);
      }
    }
  }
  static constexpr int64_t streams(int32_t rows) { return streams_of(rows); }
  static void few(const uint16_t* w, int64_t tiles, const char* x, int64_t columns, int32_t p,
                  Sums sums, Fetch& fetch) {
    kBaseTiles[p](w, tiles, x, columns, sums, fetch);
  }
  template <int T>
  static void many(const uint16_t* w, const char* x, Panels panels, int64_t columns, Sums sums,
                   Fetch& fetch, char* scratch) {
    const int64_t lines = (columns + kLineColumns - 1) / kLineColumns;
    const Errand errand{&fetch, fetch.rate(lines * panels.count)};
    auto* wide = reinterpret_cast<float*>(scratch);
    for (int64_t c = 0; c < columns; c += kBlockColumns) {
      const int64_t n = smaller(kBlockColumns, columns - c);
      widen_block<T>(w + c * kTileRows, columns * kTileRows, n, wide);
      for (int32_t i = 0; i < panels.count; ++i) {
        const int32_t first = panels.first(i), p = panels.first(i + 1) - first;
        kBaseBlock<T>[p](wide, x + (first * lines + c / kLineColumns * p) * kLineBytes, n, c == 0,
                         {sums.at + first * kTileRows, sums.tile_stride}, errand);
      }
    }
  }
};

}  // namespace

const LinearKernels kLinearAvx512 = kernels_of<BaseFp32>();

}  // namespace deltad::cpu
