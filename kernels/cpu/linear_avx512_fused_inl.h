// One row and one level of signs: base and sign product in one walk over the columns, so that the
// signs are worked out while W is on its way from memory. The arithmetic is that of the two apart:
// either sum takes its products in the same order. Included as linear_avx512_inl.h.
#pragma once

#include "kernels/cpu/linear_avx512_sign_inl.h"

namespace deltad::cpu {
namespace {

constexpr int kFusedTiles = 2;  // more at once: more streams than memory delivers side by side
constexpr int64_t kSignAheadBytes = 1024;

// y = W·x + α·(S·x) of T tiles. B::four_columns<T>(acc, w, tile, x) adds those of the base.
template <typename B, int T>
void fused_panel(const uint16_t* w, const char* x, const SignTiles& s, const Rounded& rounded,
                 int64_t columns, Sums sums) {
  const int64_t tile = columns * kTileRows;
  const __m512i two = _mm512_set1_epi8(2);
  Ahead<T> ahead(w, columns);
  Ahead<T, kSignColumnBytes, kSignAheadBytes> ahead_signs(s.words, columns);
  DELTAD_EACH(t, T) {
    _mm_prefetch(s.words + t * s.tile_words, _MM_HINT_T0);
    _mm_prefetch(s.alpha + t * kTileRows, _MM_HINT_T0);
  }
  __m512 y[T], f[T];
  DELTAD_EACH(t, T) { y[t] = f[t] = _mm512_setzero_ps(); }
  const uint64_t* words = s.words;
  const char* q = rounded.q;
  const int64_t steps = columns / kStepColumns;
  for (int64_t b = 0, first = 0; first < steps; ++b, first += kBlockSteps) {
    Lanes acc[T];
    DELTAD_EACH(t, T) { acc[t] = reinterpret_cast<Lanes>(_mm512_set1_epi32(rounded.start[b])); }
    const int64_t n = smaller(kBlockSteps, steps - first);
    for (int64_t i = 0; i < n; ++i) {
      if (i % 8 == 0) {
        DELTAD_EACH(t, T) { ahead_signs.prefetch(t, 0); }
        ahead_signs.advance(8 * kStepColumns);
      }
      DELTAD_EACH(t, T) {
        ahead.prefetch(t, 0);
        ahead.prefetch(t, 2);
      }
      ahead.advance(kStepColumns);
      B::template four_columns<T>(y, w, tile, x);
      w += kStepColumns * kTileRows;
      x += kStepColumns * B::kColumnBytes;
      const __m512i v = broadcast_dword(q + 4 * i);
      DELTAD_EACH(t, T) {
        const __m512i bytes = _mm512_maskz_mov_epi8(words[t * s.tile_words + i], two);
        acc[t] = dot_bytes(acc[t], bytes, v);
      }
    }
    words += n;
    q += kBlockLines * kLineBytes;
    const __m512 by = _mm512_set1_ps(rounded.scale[b]);
    DELTAD_EACH(t, T) { f[t] = _mm512_fmadd_ps(as_floats(acc[t]), by, f[t]); }
  }
  DELTAD_EACH(t, T) {
    float* at = sums.at + t * sums.tile_stride;
    _mm512_store_ps(at, y[t]);
    add_scaled(at, s.alpha + t * kTileRows, f[t]);
  }
}

template <typename B, int T>
void fused_tiles(const uint16_t* w, const char* x, SignTiles s, const Rounded& rounded,
                 int64_t columns, Sums sums, int64_t tiles) {
  for (; tiles >= T; tiles -= T) {
    fused_panel<B, T>(w, x, s, rounded, columns, sums);
    w += T * kTileRows * columns;
    s.words += T * s.tile_words;
    s.alpha += T * kTileRows;
    sums.at += T * sums.tile_stride;
  }
  if constexpr (T > 1) fused_tiles<B, T / 2>(w, x, s, rounded, columns, sums, tiles);
}

}  // namespace
}  // namespace deltad::cpu
