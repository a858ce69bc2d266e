// What every kernel includes: the device, under nvcc, or the emulator that tests kernels on the CPU
// (tests/support/cuda_on_cpu), which has the same names. Kernels reach memory through load_ and
// store_, PTX through the helpers of ptx.h, and pass every bound check through in_bounds, so that
// the emulator sees all of it.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)

#define DELTAD_DEVICE __device__ __forceinline__
#define DELTAD_UNROLL _Pragma("unroll")
#define DELTAD_ROLLED _Pragma("unroll 1")
#define DELTAD_PRAGMA(text) _Pragma(#text)
#define DELTAD_UNROLL_BY(n) DELTAD_PRAGMA(unroll(n))

namespace deltad::cuda {

// An address in the block's dynamic shared memory.
template <class T>
using Shared = T*;

template <class T>
DELTAD_DEVICE Shared<T> dynamic_shared() {
  extern __shared__ __align__(128) unsigned char deltad_dynamic_shared[];
  return reinterpret_cast<T*>(deltad_dynamic_shared);
}
template <class U, class T>
DELTAD_DEVICE Shared<U> shared_cast(T* p) {
  return reinterpret_cast<U*>(p);
}

template <class T>
struct SameType {
  using Type = T;
};
template <class T>
DELTAD_DEVICE T load_shared(const T* p) {
  return *p;
}
template <class T>
DELTAD_DEVICE void store_shared(T* p, typename SameType<T>::Type value) {
  *p = value;
}
// An atomic sum; returns what was there before.
DELTAD_DEVICE uint32_t atomic_add_shared(uint32_t* p, uint32_t value) {
  return atomicAdd(p, value);
}
template <class T>
DELTAD_DEVICE T load_global(const T* p) {
  return *p;
}
template <class T>
DELTAD_DEVICE void store_global(T* p, typename SameType<T>::Type value) {
  *p = value;
}

DELTAD_DEVICE bool in_bounds(bool condition) { return condition; }

}  // namespace deltad::cuda

#include "kernels/cuda/ptx.h"

#else

#include "tests/support/cuda_on_cpu/device.h"

#define DELTAD_DEVICE inline
#define DELTAD_UNROLL
#define DELTAD_ROLLED
#define DELTAD_UNROLL_BY(n)

#endif

namespace deltad::cuda {

constexpr uint32_t kAllLanes = 0xffffffffu;  // of a warp

DELTAD_DEVICE float bf16_to_float(uint16_t v) {
  return __uint_as_float(static_cast<uint32_t>(v) << 16);
}
// The two bf16 of a word.
DELTAD_DEVICE float low_bf16(uint32_t pair) { return __uint_as_float(pair << 16); }
DELTAD_DEVICE float high_bf16(uint32_t pair) { return __uint_as_float(pair & 0xffff0000u); }

}  // namespace deltad::cuda
