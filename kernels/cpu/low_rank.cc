#include "kernels/cpu/low_rank.h"

#include <bit>

#include "kernels/cpu/layout.h"
#include "kernels/cpu/low_rank_isa.h"
#include "kernels/cpu/low_rank_tiles_inl.h"

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
  for (int32_t p = 0; p < factors.part_count; ++p) {
    const LowRankPart& part = factors.parts[p];
    const TileRange of = tiles_of_part(part, row / kTileRows, 1);
    if (of.begin == of.end) continue;
    const uint16_t* b = factors.b + part.b + of.begin * part.b_step + row % kTileRows * 2;
    for (int32_t k = 0; k < part.rank; ++k) {
      const float by = factors.scale[part.first + k] * widen(b[k / 2 * 2 * kTileRows + k % 2]);
      const uint16_t* a = factors.a + (part.first + k) * factors.a_stride;
      for (int64_t c = 0; c < columns; ++c) out[c] += by * widen(a[c]);
    }
  }
}

}  // namespace deltad::cpu
