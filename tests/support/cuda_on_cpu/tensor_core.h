// What the tensor core's instructions compute, on the fragments of a warp's 32 lanes. Pure
// functions; layouts as the PTX manual draws them (docs/kernels.md).
#pragma once

#include <array>
#include <cstdint>

namespace deltad::emulator {

// One lane's registers: D = A·B + D.
template <class Accumulator>
struct Fragments {
  Accumulator* d;     // [4]
  const uint32_t* a;  // [4]
  const uint32_t* b;  // [2]
};
template <class Accumulator>
using WarpFragments = std::array<Fragments<Accumulator>, 32>;

// m16n8k16; sums in fp32, in the order of k.
void mma_bf16(const WarpFragments<float>& warp);
void mma_f16(const WarpFragments<float>& warp);
// m16n8k256 on single bits: sums of popcounts.
void mma_b1_and(const WarpFragments<int32_t>& warp);
void mma_b1_xor(const WarpFragments<int32_t>& warp);

}  // namespace deltad::emulator
