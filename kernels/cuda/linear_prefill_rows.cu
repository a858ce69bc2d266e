#include "kernels/cuda/device.h"
#include "kernels/cuda/linear_prefill_rows.h"

namespace deltad::cuda {
namespace {

// Where a row lies among the packed.
DELTAD_DEVICE int32_t packed_row_of(const RowGroups* groups, int32_t row) {
  const int32_t count = load_global(&groups->count);
  int32_t packed = 0;
  for (int32_t g = 0; g < count; ++g) {
    const int32_t first = load_global(&groups->group[g].first_row);
    const int32_t end = load_global(&groups->group[g].end_row);
    if (row < end) return packed + row - first;
    packed += rows_padded_to_8(end - first);
  }
  return packed;
}

DELTAD_DEVICE float power_of_two(int32_t exponent) {
  return __uint_as_float(static_cast<uint32_t>(exponent + 127) << 23);
}

DELTAD_DEVICE uint32_t scaled_pair(uint32_t pair, float scale) {
  return pack_f16x2(__fmul_rn(low_bf16(pair), scale), __fmul_rn(high_bf16(pair), scale));
}

}  // namespace

extern "C" __global__ void __launch_bounds__(kPrefillRowsThreads)
    deltad_prefill_rows(PrefillRowsParams p) {
  const auto lane = static_cast<int32_t>(threadIdx.x % 32);
  const auto row =
      static_cast<int32_t>(blockIdx.x) * kPrefillRowsWarps + static_cast<int32_t>(threadIdx.x / 32);
  wait_for_previous_kernel();
  if (!in_bounds(row < p.rows)) return;
  const auto* in = reinterpret_cast<const uint4*>(p.x + row * p.x_stride);
  const int32_t units = (p.columns + 7) / 8;

  // The largest exponent, from the bits of the largest magnitude.
  uint32_t largest = 0;
  for (int32_t u = lane; in_bounds(u < units); u += 32) {
    const uint4 v = load_global(in + u);
    for (uint32_t pair : {v.x, v.y, v.z, v.w}) {
      const uint32_t low = pair & 0x7fffu, high = pair >> 16 & 0x7fffu;
      largest = low > largest ? low : largest;
      largest = high > largest ? high : largest;
    }
  }
  for (int flip = 16; flip > 0; flip /= 2) {
    const uint32_t other = __shfl_xor_sync(kAllLanes, largest, flip);
    largest = other > largest ? other : largest;
  }
  // A row of tiny values or zeros: what the scale can be at most, so that 1 / scale is normal.
  const int32_t wanted = kPrefillRowExponent - (static_cast<int32_t>(largest >> 7) - 127);
  const int32_t exponent = wanted < 126 ? wanted : 126;
  const float scale = power_of_two(exponent);

  const int32_t packed = packed_row_of(p.groups, row);
  auto* out = static_cast<uint4*>(p.packed) + (packed / 8 * kPrefillUnits * 8 + packed % 8);
  const int64_t block = static_cast<int64_t>(p.packed_rows) * kPrefillUnits;
  for (int32_t u = lane; in_bounds(u < prefill_blocks(p.columns) * kPrefillUnits); u += 32) {
    uint4 v = make_uint4(0, 0, 0, 0);
    if (in_bounds(u < units)) v = load_global(in + u);
    store_global(out + u / kPrefillUnits * block + u % kPrefillUnits * 8,
                 make_uint4(scaled_pair(v.x, scale), scaled_pair(v.y, scale),
                            scaled_pair(v.z, scale), scaled_pair(v.w, scale)));
  }
  if (lane == 0) store_global(p.scale + row, power_of_two(-exponent));
}

}  // namespace deltad::cuda
