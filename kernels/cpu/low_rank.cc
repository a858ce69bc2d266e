#include "kernels/cpu/low_rank.h"

#include <bit>

#include "kernels/cpu/layout.h"
#include "kernels/cpu/low_rank_isa.h"

namespace deltad::cpu {
namespace {

float widen(uint16_t v) { return std::bit_cast<float>(static_cast<uint32_t>(v) << 16); }

}  // namespace

const LowRankKernels& low_rank_kernels(Isa isa) {
  switch (isa) {
    case Isa::kScalar:
      return kLowRankScalar;
#if defined(__x86_64__)
    case Isa::kAvx2:
      return kLowRankAvx2;
    case Isa::kAvx512:
      return kLowRankAvx512;
    case Isa::kAvx512Bf16:
      return kLowRankAvx512Bf16;
#else
    default:
      break;
#endif
  }
  return kLowRankScalar;
}

void add_low_rank_row(float* out, const LowRank& factors, int64_t row, int64_t columns) {
  const LowRankTile& tile = factors.tiles[row / kTileRows];
  for (int32_t k = 0; k < tile.rank; ++k) {
    const float by =
        factors.scale[tile.first + k] * widen(factors.b[tile.at + k * kTileRows + row % kTileRows]);
    const uint16_t* a = factors.a + (tile.first + k) * factors.a_stride;
    for (int64_t c = 0; c < columns; ++c) out[c] += by * widen(a[c]);
  }
}

}  // namespace deltad::cpu
