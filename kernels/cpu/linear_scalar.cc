// The linear layer in plain C++, for any processor: fp32 throughout. Written so that a compiler
// turns the loops over a tile's 16 outputs into whatever vectors the target has.
#include <cmath>
#include <cstring>

#include "kernels/cpu/layout.h"
#include "kernels/cpu/linear_isa.h"
#include "kernels/cpu/low_rank_isa.h"

namespace deltad::cpu {
namespace {

float widen(uint16_t v) {
  const uint32_t u = static_cast<uint32_t>(v) << 16;
  float f;
  std::memcpy(&f, &u, sizeof f);
  return f;
}

// acc[o] = Σ_c W[o, c]·x[c] of one tile.
void base_tile(const uint16_t* w, const float* x, int64_t columns, float* acc) {
  for (int o = 0; o < kTileRows; ++o) acc[o] = 0.0f;
  for (int64_t c = 0; c < columns; c += 2, w += 2 * kTileRows) {
    for (int o = 0; o < kTileRows; ++o) acc[o] += widen(w[2 * o]) * x[c];
    for (int o = 0; o < kTileRows; ++o) acc[o] += widen(w[2 * o + 1]) * x[c + 1];
  }
}

// acc[o] = Σ_c ±x[c] of one tile.
void sign_tile(const uint64_t* words, const float* x, int64_t columns, float* acc) {
  for (int o = 0; o < kTileRows; ++o) acc[o] = 0.0f;
  for (int64_t c = 0; c < columns; c += 4) {
    const uint64_t word = words[c / 4];
    for (int i = 0; i < 4; ++i) {
      uint32_t bits;
      std::memcpy(&bits, &x[c + i], sizeof bits);
      for (int o = 0; o < kTileRows; ++o) {
        const uint32_t minus = static_cast<uint32_t>(~word >> (4 * o + i)) << 31;
        const uint32_t signed_bits = bits ^ minus;
        float v;
        std::memcpy(&v, &signed_bits, sizeof v);
        acc[o] += v;
      }
    }
  }
}

// y of one row and one tile.
void row_tile(const LinearJob& job, const LinearGroup* group, int32_t r, int64_t tile, float* y) {
  const auto* x = static_cast<const float*>(job.x[r]);
  base_tile(job.w + tile * kTileRows * job.columns, x, job.columns, y);
  for (int l = 0; group != nullptr && l < group->levels; ++l) {
    float acc[kTileRows];
    sign_tile(group->level[l].words + tile * (job.columns / 4), x, job.columns, acc);
    const float* alpha = group->level[l].alpha + tile * kTileRows;
    for (int o = 0; o < kTileRows; ++o) y[o] += alpha[o] * acc[o];
  }
  for (int32_t g = 0; g < job.low_rank_count; ++g)
    if (job.low_rank[g].first_row <= r && r < job.low_rank[g].end_row)
      kLowRankScalar.expand(job.low_rank[g], r, r + 1, y, 0, tile, 1);
}

void run(const LinearJob& job, const void*, void*, int64_t first_tile, int64_t end_tile) {
  const int step = job.epilogue == LinearEpilogue::kSiluGate ? 2 : 1;
  if (job.await_t != nullptr) job.await_t(job.await_context);
  for (int64_t tile = first_tile; tile < end_tile; tile += step) {
    int32_t g = 0;
    for (int32_t r = 0; r < job.m; ++r) {
      while (g < job.group_count && job.groups[g].end_row <= r) ++g;
      const LinearGroup* group =
          g < job.group_count && job.groups[g].first_row <= r ? &job.groups[g] : nullptr;
      float y[kTileRows];
      row_tile(job, group, r, tile, y);
      auto* out = static_cast<float*>(job.out[r]);
      if (job.epilogue == LinearEpilogue::kSiluGate) {
        float up[kTileRows];
        row_tile(job, group, r, tile + 1, up);
        out += tile / 2 * kTileRows;
        for (int o = 0; o < kTileRows; ++o) out[o] = y[o] / (1.0f + std::exp(-y[o])) * up[o];
        continue;
      }
      const int64_t at = tile * kTileRows;
      const auto n = static_cast<int>(job.rows - at < kTileRows ? job.rows - at : kTileRows);
      if (job.epilogue == LinearEpilogue::kStore)
        for (int o = 0; o < n; ++o) out[at + o] = y[o];
      else
        for (int o = 0; o < n; ++o) out[at + o] += y[o];
    }
  }
}

size_t no_bytes(const LinearJob&) { return 0; }
int32_t no_units(const LinearJob&) { return 0; }
void prepare_nothing(const LinearJob&, void*, int32_t, int32_t) {}

}  // namespace

const LinearKernels kLinearScalar = {no_bytes, no_units, prepare_nothing, no_bytes, run};

}  // namespace deltad::cpu
