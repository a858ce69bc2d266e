// Device code of the sampler: passes over a row of logits and sums over the block.
#pragma once

#include "kernels/cuda/device.h"
#include "kernels/cuda/sampler.h"

namespace deltad::cuda {

// Shared memory.
struct SamplerShared {
  Shared<uint64_t> of_warps;         // [2][warps], used in turns (next_of_warps)
  Shared<uint64_t> found;            // [3] what a search found
  Shared<uint32_t> low, high;        // [kSelectBins] halves of 64-bit sums
  Shared<uint32_t> top_key, top_id;  // [kMaxTop]
  Shared<uint32_t> top_count;
  mutable int32_t turn = 0;

  DELTAD_DEVICE SamplerShared() {
    of_warps = dynamic_shared<uint64_t>();
    found = of_warps + 2 * kSamplerWarps;
    low = shared_cast<uint32_t>(found + 4);
    high = low + kSelectBins;
    top_key = high + kSelectBins;
    top_id = top_key + kMaxTop;
    top_count = top_id + kMaxTop;
  }

  // [warps] for one exchange: store, barrier, load. Who stores into the same words again has passed
  // the barrier of the exchange between, and so have all who loaded: one barrier an exchange.
  DELTAD_DEVICE Shared<uint64_t> next_of_warps() const {
    turn = kSamplerWarps - turn;
    return of_warps + turn;
  }
};

// Larger for larger logits; −0 as 0.
DELTAD_DEVICE uint32_t key_of(float x) {
  const uint32_t bits = __float_as_uint(__fadd_rn(x, 0.0f));
  return bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
}
DELTAD_DEVICE float logit_of(uint32_t key) {
  return __uint_as_float(key >> 31 != 0 ? key & 0x7fffffffu : ~key);
}

// e^x for x ≤ 0, as the CPU's sampler works it out (engine/logit_scan.h): relative error under
// 3e-7; 0 from about −87 on.
DELTAD_DEVICE float exp_negative(float x) {
  constexpr float kRound = 12582912.0f;  // 1.5 · 2^23: leaves an integer in the low bits
  const uint32_t magnitude = __float_as_uint(x) & 0x7fffffffu;
  const uint32_t lowest = __float_as_uint(88.0f);
  const float clamped = -__uint_as_float(magnitude < lowest ? magnitude : lowest);
  const float shifted = __fadd_rn(__fmul_rn(clamped, 1.44269504088896341f), kRound);
  const float n = __fadd_rn(shifted, -kRound);
  const float r =
      __fadd_rn(__fadd_rn(clamped, -__fmul_rn(n, 0.693359375f)), __fmul_rn(n, 2.12194440e-4f));
  float p = 1.9875691500e-4f;
  p = __fadd_rn(__fmul_rn(p, r), 1.3981999507e-3f);
  p = __fadd_rn(__fmul_rn(p, r), 8.3334519073e-3f);
  p = __fadd_rn(__fmul_rn(p, r), 4.1665795894e-2f);
  p = __fadd_rn(__fmul_rn(p, r), 1.6666665459e-1f);
  p = __fadd_rn(__fmul_rn(p, r), 5.0000001201e-1f);
  p = __fadd_rn(__fadd_rn(__fmul_rn(__fmul_rn(p, r), r), r), 1.0f);
  const uint32_t exponent = __float_as_uint(shifted) - __float_as_uint(kRound);
  if (static_cast<int32_t>(exponent) <= -126) return 0;
  return __uint_as_float(__float_as_uint(p) + (exponent << 23));
}

// A token's weight against the best one's.
struct Weights {
  float max, scale;
  DELTAD_DEVICE float weight(float x) const {
    return exp_negative(__fmul_rn(__fadd_rn(x, -max), scale));
  }
  // In units of 2^-40.
  DELTAD_DEVICE uint64_t operator()(float x) const {
    return static_cast<uint64_t>(__fmul_rn(weight(x), 1099511627776.0f));
  }
};
// How many there are.
struct Ones {
  DELTAD_DEVICE uint64_t operator()(float) const { return 1; }
};

// Calls visit(id, logit) for each of the row, a thread every kSamplerThreads-th.
template <class Visit>
DELTAD_DEVICE void for_each_logit(const float* x, int32_t vocabulary, Visit visit) {
  for (auto id = static_cast<int32_t>(threadIdx.x); in_bounds(id < vocabulary);
       id += static_cast<int32_t>(kSamplerThreads)) {
    visit(id, load_global(x + id));
  }
}

// Over the block, in one order, for all threads; combine(a, b) of 64-bit values.
template <class Combine>
DELTAD_DEVICE uint64_t over_block(const SamplerShared& shared, uint64_t value, Combine combine) {
  for (int flip = 16; flip > 0; flip /= 2) {
    value = combine(value, __shfl_xor_sync(kAllLanes, value, flip));
  }
  const Shared<uint64_t> of_warps = shared.next_of_warps();
  if (threadIdx.x % 32 == 0) {
    store_shared(of_warps + static_cast<int32_t>(threadIdx.x / 32), value);
  }
  __syncthreads();
  value = load_shared(of_warps);
  for (int32_t w = 1; w < kSamplerWarps; ++w) value = combine(value, load_shared(of_warps + w));
  return value;
}
DELTAD_DEVICE uint64_t sum_over_block(const SamplerShared& shared, uint64_t value) {
  return over_block(shared, value, [](uint64_t a, uint64_t b) { return a + b; });
}
DELTAD_DEVICE uint64_t max_over_block(const SamplerShared& shared, uint64_t value) {
  return over_block(shared, value, [](uint64_t a, uint64_t b) { return a > b ? a : b; });
}

// The best token: larger logit first, of equal ones the lower id.
struct Best {
  float logit;
  int32_t token;
  bool finite;  // all logits are
};
DELTAD_DEVICE Best best_of_row(const SamplerShared& shared, const float* x, int32_t vocabulary) {
  // The key above, the id turned round below; a number that is none counts as the largest.
  uint64_t best = 0;
  bool finite = true;
  for_each_logit(x, vocabulary, [&](int32_t id, float v) {
    finite = finite && (__float_as_uint(v) & 0x7f800000u) != 0x7f800000u;
    const uint64_t own = static_cast<uint64_t>(key_of(v)) << 32 | ~static_cast<uint32_t>(id);
    best = own > best ? own : best;
  });
  best = max_over_block(shared, best);
  finite = max_over_block(shared, finite ? 0 : 1) == 0;
  return {logit_of(static_cast<uint32_t>(best >> 32)),
          static_cast<int32_t>(~static_cast<uint32_t>(best)), finite};
}

}  // namespace deltad::cuda
