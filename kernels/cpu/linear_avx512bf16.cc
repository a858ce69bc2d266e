// The linear layer on AVX-512 with bf16 arithmetic: base product by vdpbf16ps, activations in bf16.
#include "kernels/cpu/linear_avx512_run_inl.h"
#include "kernels/cpu/linear_isa.h"
#include "kernels/cpu/low_rank_isa.h"

namespace deltad::cpu {
namespace {

constexpr int64_t kBlockColumns = 128;  // columns of two tiles that stay in L1 for all panels

inline __m512 dot_pairs(__m512 acc, __m512i w, __m512i x) {
  return _mm512_dpbf16_ps(acc, reinterpret_cast<__m512bh>(x), reinterpret_cast<__m512bh>(w));
}

// sums (+)= W·x of T tiles and one panel of P rows over `columns` columns; tile: values from one
// tile to the next. Lines of the T tiles that will be needed soon are called for on the way.
template <int T, int P>
void base_panel(const uint16_t* w, int64_t tile, const char* x, int64_t columns, bool first_block,
                Sums sums, Errand errand) {
  Ahead<T> ahead(w, tile / kTileRows);
  __m512 acc[T][P];
  DELTAD_EACH(t, T) {
    DELTAD_EACH(p, P) {
      acc[t][p] = first_block ? _mm512_setzero_ps()
                              : _mm512_load_ps(sums.at + t * sums.tile_stride + p * kTileRows);
    }
  }
  const auto line = [&](int64_t n) DELTAD_INLINE {
    errand.line();
#pragma GCC unroll 2
    for (int64_t i = 0; i < n; ++i, w += 2 * kTileRows) {
      __m512i v[T];
      DELTAD_EACH(t, T) {
        v[t] = _mm512_load_si512(w + t * tile);
        ahead.prefetch(t, 2 * i);
      }
      DELTAD_EACH(p, P) {
        const __m512i b = broadcast_dword(x + p * kLineBytes + 4 * i);
        DELTAD_EACH(t, T) { acc[t][p] = dot_pairs(acc[t][p], v[t], b); }
      }
    }
    x += P * kLineBytes;
    ahead.advance(2 * n);
  };
  const int64_t pairs = columns / 2;
  for (int64_t i = 0; i < pairs / kLineDwords; ++i) line(kLineDwords);
  if (pairs % kLineDwords != 0) line(pairs % kLineDwords);
  DELTAD_EACH(t, T) {
    DELTAD_EACH(p, P) {
      _mm512_store_ps(sums.at + t * sums.tile_stride + p * kTileRows, acc[t][p]);
    }
  }
}

// Tiles whose W is read side by side by so many rows: as many as the registers hold.
constexpr int streams_of(int32_t rows) { return rows <= 3 ? 8 : rows <= 6 ? 4 : 2; }

template <int P>
void base_tiles(const uint16_t* w, int64_t tiles, const char* x, int64_t columns, Sums sums,
                Fetch& fetch) {
  constexpr int kWide = streams_of(P);
  const int64_t tile = columns * kTileRows;
  const Errand errand{&fetch, fetch.rate((tiles / kWide + tiles % kWide) * ((columns + 31) / 32))};
  for (; tiles >= kWide; tiles -= kWide, w += kWide * tile, sums.at += kWide * sums.tile_stride)
    base_panel<kWide, P>(w, tile, x, columns, true, sums, errand);
  for (; tiles > 0; --tiles, w += tile, sums.at += sums.tile_stride)
    base_panel<1, P>(w, tile, x, columns, true, sums, errand);
}

using BaseTilesFn = void (*)(const uint16_t*, int64_t, const char*, int64_t, Sums, Fetch&);
constexpr BaseTilesFn kBaseTiles[kPanel + 1] = {
    nullptr,        base_tiles<1>,  base_tiles<2>,  base_tiles<3>,  base_tiles<4>,
    base_tiles<5>,  base_tiles<6>,  base_tiles<7>,  base_tiles<8>,  base_tiles<9>,
    base_tiles<10>, base_tiles<11>, base_tiles<12>, base_tiles<13>, base_tiles<14>};

using BaseBlockFn = void (*)(const uint16_t*, int64_t, const char*, int64_t, bool, Sums, Errand);
template <int T>
constexpr BaseBlockFn kBaseBlock[kPanel + 1] = {
    nullptr,           base_panel<T, 1>,  base_panel<T, 2>,  base_panel<T, 3>,  base_panel<T, 4>,
    base_panel<T, 5>,  base_panel<T, 6>,  base_panel<T, 7>,  base_panel<T, 8>,  base_panel<T, 9>,
    base_panel<T, 10>, base_panel<T, 11>, base_panel<T, 12>, base_panel<T, 13>, base_panel<T, 14>};

struct BaseBf16 {
  static constexpr int64_t kLineColumns = 32;
  static constexpr int64_t kColumnBytes = 2;
  static constexpr size_t kManyBytes = 0;

  static const LowRankKernels& low_rank() { return kLowRankAvx512Bf16; }
  static __m512 load(const void* x, int64_t c) {
    return widen_bf16(
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(static_cast<const uint16_t*>(x) + c)));
  }
  static void store(void* out, int64_t c, __m512 v) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(static_cast<uint16_t*>(out) + c),
                        reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(v)));
  }
  template <int T>
  static DELTAD_INLINE void four_columns(__m512* acc, const uint16_t* w, int64_t tile,
                                         const char* x) {
    DELTAD_EACH(i, 2) {
      const __m512i b = broadcast_dword(x + 4 * i);
      DELTAD_EACH(t, T) {
        acc[t] = dot_pairs(acc[t], _mm512_load_si512(w + t * tile + 2 * i * kTileRows), b);
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
                   Fetch& fetch, char*) {
    const int64_t lines = (columns + kLineColumns - 1) / kLineColumns;
    const Errand errand{&fetch, fetch.rate(lines * panels.count)};
    for (int64_t c = 0; c < columns; c += kBlockColumns) {
      const int64_t n = smaller(kBlockColumns, columns - c);
      for (int32_t i = 0; i < panels.count; ++i) {
        const int32_t first = panels.first(i), p = panels.first(i + 1) - first;
        kBaseBlock<T>[p](w + c * kTileRows, columns * kTileRows,
                         x + (first * lines + c / kLineColumns * p) * kLineBytes, n, c == 0,
                         {sums.at + first * kTileRows, sums.tile_stride}, errand);
      }
    }
  }
};

}  // namespace

const LinearKernels kLinearAvx512Bf16 = kernels_of<BaseBf16>();

}  // namespace deltad::cpu
