// Device code of the sampler: where to cut the order "larger logit first, of equal ones the lower
// id", so that what stays has at least so many tokens, or weighs at least so much. Radix selection:
// for each digit of the logit's bits a histogram of what each digit's tokens measure.
#pragma once

#include "kernels/cuda/device.h"
#include "kernels/cuda/sampler_row.h"

namespace deltad::cuda {

// What stays: larger keys, and of equal ones ids up to last_id.
struct Cut {
  uint32_t key = 0;
  int32_t last_id = 0x7fffffff;
  DELTAD_DEVICE bool keeps(int32_t id, uint32_t own) const {
    return own > key || (own == key && id <= last_id);
  }
};

struct Bin {
  uint32_t index;
  uint64_t before, inside;  // measures of all bins before it, and of it
};

// The first bin at which the running sum reaches `wanted`, which it does. add(visit) calls
// visit(bin, measure) for this thread's tokens.
template <class Add>
DELTAD_DEVICE Bin find_bin(const SamplerShared& shared, uint64_t wanted, Add add) {
  constexpr int32_t kOwn = kSelectBins / static_cast<int32_t>(kSamplerThreads);
  const auto thread = static_cast<int32_t>(threadIdx.x);
  for (int32_t i = 0; i < kOwn; ++i) {
    store_shared(shared.low + (kOwn * thread + i), 0);
    store_shared(shared.high + (kOwn * thread + i), 0);
  }
  __syncthreads();
  add([&](uint32_t bin, uint64_t measure) {
    const auto low = static_cast<uint32_t>(measure);
    auto high = static_cast<uint32_t>(measure >> 32);
    if (low != 0) {
      // A carry is whoever's sum overflows.
      const uint32_t before = atomic_add_shared(shared.low + bin, low);
      if (before + low < low) ++high;
    }
    if (high != 0) atomic_add_shared(shared.high + bin, high);
  });
  __syncthreads();
  uint64_t own[kOwn], sum = 0;
  for (int32_t i = 0; i < kOwn; ++i) {
    const int32_t bin = kOwn * thread + i;
    own[i] = static_cast<uint64_t>(load_shared(shared.high + bin)) << 32;
    own[i] += load_shared(shared.low + bin);
    sum += own[i];
  }
  uint64_t end = sum;  // of the warp's bins up to this thread's
  for (unsigned by = 1; by < 32; by *= 2) {
    const uint64_t other = __shfl_up_sync(kAllLanes, end, by);
    if (threadIdx.x % 32 >= by) end += other;
  }
  const Shared<uint64_t> of_warps = shared.next_of_warps();
  if (threadIdx.x % 32 == 31) store_shared(of_warps + thread / 32, end);
  __syncthreads();
  uint64_t before = end - sum;
  for (int32_t w = 0; w < thread / 32; ++w) before += load_shared(of_warps + w);
  for (int32_t i = 0; i < kOwn; ++i) {
    if (before < wanted && wanted <= before + own[i]) {
      store_shared(shared.found, static_cast<uint64_t>(kOwn * thread + i));
      store_shared(shared.found + 1, before);
      store_shared(shared.found + 2, own[i]);
    }
    before += own[i];
  }
  __syncthreads();
  return {static_cast<uint32_t>(load_shared(shared.found)), load_shared(shared.found + 1),
          load_shared(shared.found + 2)};
}

// The shortest prefix that measures at least `wanted`: from 1 to what all tokens measure.
template <class Measure>
DELTAD_DEVICE Cut select_prefix(const SamplerShared& shared, const float* x, int32_t vocabulary,
                                Measure measure, uint64_t wanted) {
  // Digits of 11, 11 and 10 bits; the largest first.
  uint32_t key = 0, known = 0;
  uint64_t equals = 0;
  DELTAD_ROLLED
  for (int32_t shift = 21; shift >= 0; shift = shift == 21 ? 10 : shift - 10) {
    const uint32_t digits = shift == 0 ? 0x3ffu : 0x7ffu;
    const Bin bin = find_bin(shared, wanted, [&](auto visit) {
      for_each_logit(x, vocabulary, [&](int32_t, float v) {
        const uint32_t own = key_of(v);
        if ((own & known) == key) visit(digits - (own >> shift & digits), measure(v));
      });
    });
    key |= (digits - bin.index) << shift;
    known |= digits << shift;
    wanted -= bin.before;
    equals = bin.inside;
  }
  // Of the tokens with this logit, how many are wanted; if not all, the ids' two digits follow.
  const uint64_t one = measure(logit_of(key));
  wanted = (wanted + one - 1) / one;
  if (wanted * one >= equals) return {key, 0x7fffffff};
  uint32_t id = 0, known_id = 0;
  DELTAD_ROLLED
  for (int32_t shift = 11; shift >= 0; shift -= 11) {
    const Bin bin = find_bin(shared, wanted, [&](auto visit) {
      for_each_logit(x, vocabulary, [&](int32_t own_id, float v) {
        const auto own = static_cast<uint32_t>(own_id);
        if (key_of(v) == key && (own & known_id) == id) visit(own >> shift & 0x7ffu, 1);
      });
    });
    id |= bin.index << shift;
    known_id |= 0x7ffu << shift;
    wanted -= bin.before;
  }
  return {key, static_cast<int32_t>(id)};
}

}  // namespace deltad::cuda
