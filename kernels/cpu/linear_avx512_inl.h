// What the two AVX-512 forms of the linear layer share: vector helpers and epilogues. Included by
// linear_avx512.cc and linear_avx512bf16.cc only. Everything is in an anonymous namespace, so that
// nothing compiled for AVX-512 can stand in for a function of a plain file.
#pragma once

// GCC 12 warns of the registers that its own intrinsics leave undefined on purpose.
#pragma GCC diagnostic push
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#pragma GCC diagnostic pop

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "kernels/cpu/layout.h"
#include "kernels/cpu/linear.h"
#include "kernels/cpu/linear_panels_inl.h"

namespace deltad::cpu {
namespace {

constexpr int32_t kPanel = 14;  // 14 rows × 2 tiles of accumulators fill the registers

// Brings memory that will be read soon into the second-level cache, a few lines at a time while
// something else is computed. Fourteen short streams of sign bits defeat the processor's own
// prefetcher.
class Fetch {
 public:
  Fetch() = default;
  Fetch(const Range* ranges, int64_t count) : next_(ranges), last_(ranges + count) {
    for (int64_t i = 0; i < count; ++i) left_ += ranges[i].bytes / kLineBytes + 1;
  }
  // Lines to fetch in each of `steps` steps so that all are.
  int64_t rate(int64_t steps) const { return left_ <= 0 ? 0 : (left_ + steps - 1) / steps; }
  int64_t left() const { return left_; }
  DELTAD_INLINE void lines(int64_t n) {
    left_ -= n;
    while (n > 0) {
      if (at_ >= end_) {
        if (next_ == last_) return;
        at_ = next_->at;
        end_ = at_ + next_->bytes;
        ++next_;
      }
      int64_t here = smaller(n, (end_ - at_ + kLineBytes - 1) / kLineBytes);
      n -= here;
#pragma GCC unroll 4
      for (; here > 0; --here, at_ += kLineBytes) _mm_prefetch(at_, _MM_HINT_T1);
    }
  }

 private:
  const Range* next_ = nullptr;
  const Range* last_ = nullptr;
  const char* at_ = nullptr;
  const char* end_ = nullptr;
  int64_t left_ = 0;
};

// What a kernel fetches on the way, in each line of columns.
struct Errand {
  Fetch* fetch;
  int64_t per_line;
  DELTAD_INLINE void line() const { fetch->lines(per_line); }
};

// The lines of T tiles' streams that lie kBytes further on (all T together): in the same tiles,
// then in the T tiles that follow. kColumnBytes: of a column of one tile.
constexpr int64_t kAheadBytes = 8192;
constexpr int64_t kBaseColumnBytes = 2 * kTileRows, kSignColumnBytes = kTileRows / 8;
template <int T, int64_t kColumnBytes = kBaseColumnBytes, int64_t kBytes = kAheadBytes>
class Ahead {
 public:
  Ahead(const void* tiles, int64_t columns)
      : at_(static_cast<const char*>(tiles) + kColumns * kColumnBytes),
        tile_bytes_(columns * kColumnBytes),
        columns_(columns),
        left_(columns - kColumns) {
    cross();
  }
  DELTAD_INLINE void prefetch(int t, int64_t column) const {
    _mm_prefetch(at_ + t * tile_bytes_ + column * kColumnBytes, _MM_HINT_T0);
  }
  DELTAD_INLINE void advance(int64_t columns) {
    at_ += columns * kColumnBytes;
    left_ -= columns;
    if (left_ <= 0) cross();
  }

 private:
  static constexpr int64_t kColumns = kBytes / (T * kColumnBytes);

  void cross() {
    for (; left_ <= 0; left_ += columns_) at_ += (T - 1) * tile_bytes_;
  }
  const char* at_;
  int64_t tile_bytes_, columns_, left_;
};

inline __m512i broadcast_dword(const char* p) {
  int32_t v;
  memcpy(&v, p, sizeof v);
  return _mm512_set1_epi32(v);
}

inline __m512 broadcast_float(const char* p) {
  float v;
  memcpy(&v, p, sizeof v);
  return _mm512_set1_ps(v);
}

inline __m512 widen_bf16(__m256i v) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(v), 16));
}

// eˣ to about 1 ulp: 2ⁿ·e^r with |r| ≤ ln 2 / 2 and a polynomial of degree 6 for e^r.
inline __m512 exp_ps(__m512 x) {
  const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)),
                                        _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), x);
  r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4f), r);
  __m512 p = _mm512_set1_ps(1.3981999507e-3f);
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(8.3334519073e-3f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(4.1665795894e-2f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.6666665459e-1f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.5f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
  return _mm512_scalef_ps(p, n);
}

inline __m512 silu_gate(__m512 gate, __m512 up) {
  const __m512 one = _mm512_set1_ps(1.0f);
  const __m512 e = exp_ps(_mm512_sub_ps(_mm512_setzero_ps(), gate));
  return _mm512_mul_ps(_mm512_div_ps(gate, _mm512_add_ps(one, e)), up);
}

// Writes the sums of tiles [tile, tile + tiles) of all rows. Store: how 16 values of an activation
// are written.
template <typename Store>
void write_out(const LinearJob& job, Sums sums, int64_t tile, int64_t tiles, Store store) {
  for (int32_t r = 0; r < job.m; ++r) {
    const float* y = sums.at + r * kTileRows;
    if (job.epilogue == LinearEpilogue::kSiluGate) {
      for (int64_t t = 0; t < tiles; t += 2)
        store(job.out[r], (tile + t) / 2 * kTileRows,
              silu_gate(_mm512_load_ps(y + t * sums.tile_stride),
                        _mm512_load_ps(y + (t + 1) * sums.tile_stride)));
      continue;
    }
    auto* out = static_cast<float*>(job.out[r]);
    for (int64_t t = 0; t < tiles; ++t) {
      const int64_t at = (tile + t) * kTileRows;
      if (at >= job.rows) break;
      const auto mask = static_cast<__mmask16>((1u << smaller(kTileRows, job.rows - at)) - 1u);
      __m512 v = _mm512_load_ps(y + t * sums.tile_stride);
      if (job.epilogue == LinearEpilogue::kAddResidual)
        v = _mm512_add_ps(v, _mm512_maskz_loadu_ps(mask, out + at));
      _mm512_mask_storeu_ps(out + at, mask, v);
    }
  }
}

}  // namespace
}  // namespace deltad::cpu
