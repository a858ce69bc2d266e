// The linear layer on AVX2 with FMA: fp32 throughout. A tile is two registers of 8 outputs; its
// weights of one column, widened from bf16 or made from sign bits (±1), meet a broadcast
// activation.
#include <immintrin.h>
#include <string.h>

#include "kernels/cpu/layout.h"
#include "kernels/cpu/linear_isa.h"
#include "kernels/cpu/linear_panels_inl.h"
#include "kernels/cpu/low_rank_isa.h"

namespace deltad::cpu {
namespace {

constexpr int32_t kPanel = 6;     // 6 rows × 2 registers of sums, 2 of weights, 1 activation
constexpr int64_t kFewTiles = 8;  // tiles of a chunk for up to kPanel rows; 2 for more
constexpr int64_t kManyTiles = 2;
constexpr int64_t kBlockColumns = 64;  // of a tile made wide in L1 for many rows

struct Pair {
  __m256 low, high;  // outputs 0–7 and 8–15
};

// Columns come in steps, each a few registers of packed weights; column(i) makes one of them wide.
struct BaseWeights {
  static constexpr int64_t kStep = 2;
  const uint16_t* w;
  __m256i low{}, high{};

  void load(int64_t c) {
    low = _mm256_load_si256(reinterpret_cast<const __m256i*>(w + c * kTileRows));
    high = _mm256_load_si256(reinterpret_cast<const __m256i*>(w + c * kTileRows + 16));
  }
  template <int I>
  Pair column() const {
    if constexpr (I == 0)
      return {_mm256_castsi256_ps(_mm256_slli_epi32(low, 16)),
              _mm256_castsi256_ps(_mm256_slli_epi32(high, 16))};
    const __m256i odd = _mm256_set1_epi32(static_cast<int>(0xffff0000));
    return {_mm256_castsi256_ps(_mm256_and_si256(low, odd)),
            _mm256_castsi256_ps(_mm256_and_si256(high, odd))};
  }
};

struct SignWeights {
  static constexpr int64_t kStep = 4;
  const uint64_t* words;
  __m256i low{}, high{};  // output o's bits of columns 0 to 3 in bits 28 to 31

  void load(int64_t c) {
    const uint64_t word = words[c / 4];
    const __m256i by = _mm256_setr_epi32(28, 24, 20, 16, 12, 8, 4, 0);
    low = _mm256_sllv_epi32(_mm256_set1_epi32(static_cast<int>(word)), by);
    high = _mm256_sllv_epi32(_mm256_set1_epi32(static_cast<int>(word >> 32)), by);
  }
  template <int I>
  static __m256 plus_minus_one(__m256i bits) {
    const __m256 top =
        _mm256_and_ps(_mm256_castsi256_ps(_mm256_slli_epi32(bits, 3 - I)), _mm256_set1_ps(-0.0f));
    return _mm256_xor_ps(top, _mm256_set1_ps(-1.0f));
  }
  template <int I>
  Pair column() const {
    return {plus_minus_one<I>(low), plus_minus_one<I>(high)};
  }
};

inline __m256 broadcast(const char* p) {
  float v;
  memcpy(&v, p, sizeof v);
  return _mm256_set1_ps(v);
}

// Where a finished sum goes: stored, or scaled by α and added to what is there.
struct Put {
  Sums sums;
  const float* alpha;  // of the first tile; null: store

  Put from_tile(int64_t t) const {
    return {{sums.at + t * sums.tile_stride, sums.tile_stride},
            alpha == nullptr ? nullptr : alpha + t * kTileRows};
  }
  void operator()(int64_t t, int64_t p, Pair v) const {
    float* to = sums.at + t * sums.tile_stride + p * kTileRows;
    if (alpha != nullptr) {
      const float* a = alpha + t * kTileRows;
      v.low = _mm256_fmadd_ps(_mm256_loadu_ps(a), v.low, _mm256_load_ps(to));
      v.high = _mm256_fmadd_ps(_mm256_loadu_ps(a + 8), v.high, _mm256_load_ps(to + 8));
    }
    _mm256_store_ps(to, v.low);
    _mm256_store_ps(to + 8, v.high);
  }
};

template <int I, int T, int P, typename Weights>
inline void one_column(const Weights (&w)[T], const char* x, Pair (&acc)[T][P]) {
  Pair v[T];
  for (int t = 0; t < T; ++t) v[t] = w[t].template column<I>();
  for (int p = 0; p < P; ++p) {
    const __m256 b = broadcast(x + p * kLineBytes + 4 * I);
    for (int t = 0; t < T; ++t) {
      acc[t][p].low = _mm256_fmadd_ps(v[t].low, b, acc[t][p].low);
      acc[t][p].high = _mm256_fmadd_ps(v[t].high, b, acc[t][p].high);
    }
  }
}

inline BaseWeights tile_of(const uint16_t* w, int64_t columns, int64_t t) {
  return {w + t * kTileRows * columns};
}
inline SignWeights tile_of(const uint64_t* words, int64_t columns, int64_t t) {
  return {words + t * (columns / 4)};
}

// The product of T tiles and one panel of P rows, weights (bf16 or words of signs) from memory.
template <int T, int P, typename Packed>
void panel(const Packed* packed, const char* x, int64_t columns, const Put& put) {
  using Weights = decltype(tile_of(packed, columns, 0));
  Weights w[T];
  Pair acc[T][P];
  for (int t = 0; t < T; ++t) {
    w[t] = tile_of(packed, columns, t);
    for (int p = 0; p < P; ++p) acc[t][p] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
  }
  for (int64_t c = 0; c < columns; c += Weights::kStep) {
    const char* from = x + c / kLineDwords * P * kLineBytes + c % kLineDwords * 4;
    for (int t = 0; t < T; ++t) w[t].load(c);
    one_column<0, T, P>(w, from, acc);
    one_column<1, T, P>(w, from, acc);
    if constexpr (Weights::kStep == 4) {
      one_column<2, T, P>(w, from, acc);
      one_column<3, T, P>(w, from, acc);
    }
  }
  for (int t = 0; t < T; ++t)
    for (int p = 0; p < P; ++p) put(t, p, acc[t][p]);
}

template <int P, typename Packed>
void few_rows(const Packed* packed, int64_t tiles, const char* x, int64_t columns, const Put& put) {
  constexpr int kWide = P == 1 ? 4 : P <= 3 ? 2 : 1;
  const int64_t tile = sizeof(Packed) == 2 ? kTileRows * columns : columns / 4;
  int64_t t = 0;
  for (; t + kWide <= tiles; t += kWide)
    panel<kWide, P>(packed + t * tile, x, columns, put.from_tile(t));
  if constexpr (kWide > 1)
    for (; t < tiles; ++t) panel<1, P>(packed + t * tile, x, columns, put.from_tile(t));
}

template <typename Packed>
void few(const Packed* packed, int64_t tiles, const char* x, int64_t columns, int32_t p,
         const Put& put) {
  using Fn = void (*)(const Packed*, int64_t, const char*, int64_t, const Put&);
  static constexpr Fn kFew[kPanel + 1] = {nullptr,     few_rows<1>, few_rows<2>, few_rows<3>,
                                          few_rows<4>, few_rows<5>, few_rows<6>};
  kFew[p](packed, tiles, x, columns, put);
}

// ---- many rows: a block of columns of one tile is made wide once, in L1, for all panels --------

template <typename Weights>
void widen(Weights w, int64_t first, int64_t columns, float* wide) {
  const auto store = [&](Pair v) {
    _mm256_store_ps(wide, v.low);
    _mm256_store_ps(wide + 8, v.high);
    wide += kTileRows;
  };
  for (int64_t c = first; c < first + columns; c += Weights::kStep) {
    w.load(c);
    store(w.template column<0>());
    store(w.template column<1>());
    if constexpr (Weights::kStep == 4) {
      store(w.template column<2>());
      store(w.template column<3>());
    }
  }
}

// sums[row] (+)= one block of columns, for the P rows of a panel.
template <int P>
void block(const float* wide, const char* x, int64_t columns, bool first_block, float* sums) {
  Pair acc[P];
  for (int p = 0; p < P; ++p)
    acc[p] = first_block ? Pair{_mm256_setzero_ps(), _mm256_setzero_ps()}
                         : Pair{_mm256_load_ps(sums + p * kTileRows),
                                _mm256_load_ps(sums + p * kTileRows + 8)};
  for (int64_t c = 0; c < columns; c += kLineDwords, x += P * kLineBytes) {
    const int64_t n = smaller(kLineDwords, columns - c);
    for (int64_t i = 0; i < n; ++i, wide += kTileRows) {
      const __m256 low = _mm256_load_ps(wide), high = _mm256_load_ps(wide + 8);
      for (int p = 0; p < P; ++p) {
        const __m256 b = broadcast(x + p * kLineBytes + 4 * i);
        acc[p].low = _mm256_fmadd_ps(low, b, acc[p].low);
        acc[p].high = _mm256_fmadd_ps(high, b, acc[p].high);
      }
    }
  }
  for (int p = 0; p < P; ++p) {
    _mm256_store_ps(sums + p * kTileRows, acc[p].low);
    _mm256_store_ps(sums + p * kTileRows + 8, acc[p].high);
  }
}

using BlockFn = void (*)(const float*, const char*, int64_t, bool, float*);
constexpr BlockFn kBlock[kPanel + 1] = {nullptr,  block<1>, block<2>, block<3>,
                                        block<4>, block<5>, block<6>};

// The product of one tile for the m rows of x, whose panels have `lines` lines, into sums[row][16].
template <typename Weights>
void many(const Weights& w, const char* x, const Panels& panels, int64_t columns, float* sums,
          float* wide) {
  const int64_t lines = (columns + kLineDwords - 1) / kLineDwords;
  for (int64_t c = 0; c < columns; c += kBlockColumns) {
    const int64_t n = smaller(kBlockColumns, columns - c);
    widen(w, c, n, wide);
    for (int32_t i = 0; i < panels.count; ++i) {
      const int32_t first = panels.first(i), p = panels.first(i + 1) - first;
      kBlock[p](wide, x + (first * lines + c / kLineDwords * p) * kLineBytes, n, c == 0,
                sums + first * kTileRows);
    }
  }
}

// ---- epilogues ---------------------------------------------------------------------------------

// eˣ to about 1 ulp: 2ⁿ·e^r with |r| ≤ ln 2 / 2 and a polynomial of degree 6 for e^r. x is held to
// where 2ⁿ is a normal number.
inline __m256 exp_ps(__m256 x) {
  x = _mm256_min_ps(_mm256_max_ps(x, _mm256_set1_ps(-87.0f)), _mm256_set1_ps(88.0f));
  const __m256 n = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(1.44269504f)),
                                   _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693359375f), x);
  r = _mm256_fnmadd_ps(n, _mm256_set1_ps(-2.12194440e-4f), r);
  __m256 p = _mm256_set1_ps(1.3981999507e-3f);
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(8.3334519073e-3f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(4.1665795894e-2f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.6666665459e-1f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0.5f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
  const __m256i power =
      _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
  return _mm256_mul_ps(p, _mm256_castsi256_ps(power));
}

inline __m256 silu_gate(__m256 gate, __m256 up) {
  const __m256 e = exp_ps(_mm256_sub_ps(_mm256_setzero_ps(), gate));
  return _mm256_mul_ps(_mm256_div_ps(gate, _mm256_add_ps(_mm256_set1_ps(1.0f), e)), up);
}

void write_out(const LinearJob& job, Sums sums, int64_t tile, int64_t tiles) {
  for (int32_t r = 0; r < job.m; ++r) {
    const float* y = sums.at + r * kTileRows;
    auto* out = static_cast<float*>(job.out[r]);
    if (job.epilogue == LinearEpilogue::kSiluGate) {
      for (int64_t t = 0; t < tiles; t += 2, y += 2 * sums.tile_stride)
        for (int i = 0; i < kTileRows; i += 8)
          _mm256_storeu_ps(
              out + (tile + t) / 2 * kTileRows + i,
              silu_gate(_mm256_load_ps(y + i), _mm256_load_ps(y + sums.tile_stride + i)));
      continue;
    }
    const bool add = job.epilogue == LinearEpilogue::kAddResidual;
    for (int64_t t = 0; t < tiles; ++t, y += sums.tile_stride) {
      const int64_t at = (tile + t) * kTileRows, n = job.rows - at;
      if (n >= kTileRows) {
        for (int i = 0; i < kTileRows; i += 8) {
          const __m256 v = _mm256_load_ps(y + i);
          _mm256_storeu_ps(out + at + i, add ? _mm256_add_ps(v, _mm256_loadu_ps(out + at + i)) : v);
        }
      } else {
        for (int64_t i = 0; i < n; ++i) out[at + i] = add ? y[i] + out[at + i] : y[i];
      }
    }
  }
}

// ---- the walk over tiles -----------------------------------------------------------------------

int64_t lines_of(const LinearJob& job) { return (job.columns + kLineDwords - 1) / kLineDwords; }

// prepared: panels of all rows, for the base; then panels of each group's rows, for its signs. One
// row needs none.
size_t panel_bytes(const LinearJob& job, int32_t m) {
  return m < 2 ? 0 : static_cast<size_t>(lines_of(job) * m * kLineBytes);
}

size_t prepared_bytes(const LinearJob& job) {
  size_t bytes = panel_bytes(job, job.m);
  for (int32_t g = 0; g < job.group_count; ++g)
    bytes += panel_bytes(job, job.groups[g].end_row - job.groups[g].first_row);
  return bytes;
}

int32_t prepare_units(const LinearJob& job) { return job.m < 2 ? 0 : job.m; }

void prepare(const LinearJob& job, void* prepared, int32_t first_row, int32_t end_row) {
  const auto copy = [](char* to, const char* from) {
    for (int i = 0; i < kLineBytes; i += 32)
      _mm256_store_si256(reinterpret_cast<__m256i*>(to + i),
                         _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i)));
  };
  auto* at = static_cast<char*>(prepared);
  if (job.m < 2) return;
  pack_rows(job.x, Panels(job.m, kPanel), lines_of(job), at, first_row, end_row, copy);
  at += panel_bytes(job, job.m);
  for (int32_t g = 0; g < job.group_count; ++g) {
    const LinearGroup& group = job.groups[g];
    const int32_t m = group.end_row - group.first_row;
    if (m < 2) continue;
    const int32_t begin = first_row > group.first_row ? first_row : group.first_row;
    const int32_t end = end_row < group.end_row ? end_row : group.end_row;
    pack_rows(job.x + group.first_row, Panels(m, kPanel), lines_of(job), at,
              begin - group.first_row, end - group.first_row, copy);
    at += panel_bytes(job, m);
  }
}

size_t worker_bytes(const LinearJob& job) {
  const int64_t tiles = job.m <= kPanel ? kFewTiles : kManyTiles + 1;
  return static_cast<size_t>(tiles * job.m * kTileRows + kBlockColumns * kTileRows) * sizeof(float);
}

bool all_zero(const float* alpha) {
  for (int o = 0; o < kTileRows; ++o)
    if (alpha[o] != 0.0f) return false;
  return true;
}

// scratch: one tile's sums of all rows, then a wide block.
void add_signs(const LinearJob& job, const char* panels, Sums sums, int64_t tile, int64_t tiles,
               float* scratch, float* wide) {
  for (int32_t g = 0; g < job.group_count; ++g) {
    const LinearGroup& group = job.groups[g];
    const int32_t m = group.end_row - group.first_row;
    const auto* x = m < 2 ? static_cast<const char*>(job.x[group.first_row]) : panels;
    panels += panel_bytes(job, m);
    for (int32_t l = 0; l < group.levels; ++l)
      for (int64_t t = 0; t < tiles; ++t) {
        const float* alpha = group.level[l].alpha + (tile + t) * kTileRows;
        if (all_zero(alpha)) continue;  // a part that the variant leaves as it is
        const uint64_t* words = group.level[l].words + (tile + t) * (job.columns / 4);
        const Put put{
            {sums.at + t * sums.tile_stride + group.first_row * kTileRows, sums.tile_stride},
            alpha};
        if (m <= kPanel) {
          few(words, 1, x, job.columns, m, put);
          continue;
        }
        many(tile_of(words, job.columns, 0), x, Panels(m, kPanel), job.columns, scratch, wide);
        for (int32_t r = 0; r < m; ++r) {
          const float* f = scratch + r * kTileRows;
          put(0, r, {_mm256_load_ps(f), _mm256_load_ps(f + 8)});
        }
      }
  }
}

void run(const LinearJob& job, const void* prepared, void* scratch, int64_t first_tile,
         int64_t end_tile) {
  const auto* x = static_cast<const char*>(job.m < 2 ? job.x[0] : prepared);
  const char* group_panels = static_cast<const char*>(prepared) + panel_bytes(job, job.m);
  const int64_t chunk = job.m <= kPanel ? kFewTiles : kManyTiles;
  const Sums sums{static_cast<float*>(scratch), static_cast<int64_t>(job.m) * kTileRows};
  float* wide = sums.at + chunk * sums.tile_stride;
  float* sign_sums = wide + kBlockColumns * kTileRows;
  const int64_t tile_values = kTileRows * job.columns;
  for (int64_t tile = first_tile; tile < end_tile; tile += chunk) {
    const int64_t n = smaller(chunk, end_tile - tile);
    for_low_rank_ranges(job, tile, n, [](Range range) {
      for (int64_t i = 0; i < range.bytes; i += kLineBytes) _mm_prefetch(range.at + i, _MM_HINT_T1);
    });
    if (job.m <= kPanel)
      few(job.w + tile * tile_values, n, x, job.columns, job.m, {sums, nullptr});
    else
      for (int64_t t = 0; t < n; ++t)
        many(tile_of(job.w + (tile + t) * tile_values, job.columns, 0), x, Panels(job.m, kPanel),
             job.columns, sums.at + t * sums.tile_stride, wide);
    add_signs(job, group_panels, sums, tile, n, sign_sums, wide);
    add_low_rank(job, kLowRankAvx2, sums, tile, n);
    write_out(job, sums, tile, n);
  }
}

}  // namespace

const LinearKernels kLinearAvx2 = {prepared_bytes, prepare_units, prepare, worker_bytes, run};

}  // namespace deltad::cpu
