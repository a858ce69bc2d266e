// CUDA's language and built-in functions, under CUDA's names, for kernels compiled as C++.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "tests/support/cuda_on_cpu/machine.h"
#include "tests/support/cuda_on_cpu/memory.h"
#include "tests/support/cuda_on_cpu/vector_types.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)

#define threadIdx (::deltad::emulator::current->id)
#define blockIdx (::deltad::emulator::current->block->index)
#define blockDim (::deltad::emulator::current->block->machine->shape().block)
#define gridDim (::deltad::emulator::current->block->machine->shape().grid)

namespace deltad::emulator {

// A lane's part in a shuffle.
template <class T>
struct Shuffled {
  T in, out;
  uint32_t from;
};

template <class T>
T shuffle(const char* name, uint32_t mask, T value, uint32_t from, Where where) {
  Shuffled<T> part{value, value, from};
  current->block->machine->meet(name, mask, &part, where, [=](Warp& warp, uint32_t lanes) {
    for (uint32_t left = lanes; left != 0; left &= left - 1) {
      Thread& lane = *warp.lanes[std::countr_zero(left)];
      auto& own = *static_cast<Shuffled<T>*>(lane.arguments);
      if ((lanes >> own.from & 1) == 0) {
        current->block->machine->fail(FaultKind::kBadLane, lane, where, [] {
          return std::string("shuffles from a lane outside the mask");
        });
      }
      own.out = static_cast<Shuffled<T>*>(warp.lanes[own.from]->arguments)->in;
    }
  });
  return part.out;
}

uint32_t ballot(uint32_t mask, bool vote, Where where);

// Relaxed, as CUDA's atomics are.
template <class T>
T atomic_add(T* p, T value, Where where) {
  T* there = reinterpret_cast<T*>(global_write(p, sizeof(T), where));
  const T old = *there;
  *there = old + value;
  return old;
}

}  // namespace deltad::emulator

inline void __syncthreads(deltad::emulator::Where where = deltad::emulator::Where::here()) {
  deltad::emulator::current->block->machine->barrier(0, 0, where);
}

void __syncwarp(uint32_t mask = 0xffffffffu,
                deltad::emulator::Where where = deltad::emulator::Where::here());

template <class T>
T __shfl_sync(uint32_t mask, T value, int from, int width = 32,
              deltad::emulator::Where where = deltad::emulator::Where::here()) {
  const auto lane = deltad::emulator::current->lane, w = static_cast<uint32_t>(width);
  return deltad::emulator::shuffle("__shfl_sync", mask, value,
                                   lane / w * w + (static_cast<uint32_t>(from) & (w - 1)), where);
}

template <class T>
T __shfl_xor_sync(uint32_t mask, T value, int flip, int width = 32,
                  deltad::emulator::Where where = deltad::emulator::Where::here()) {
  const auto lane = deltad::emulator::current->lane, w = static_cast<uint32_t>(width);
  const uint32_t from = lane ^ static_cast<uint32_t>(flip);
  return deltad::emulator::shuffle("__shfl_xor_sync", mask, value,
                                   from / w <= lane / w ? from : lane, where);
}

template <class T>
T __shfl_down_sync(uint32_t mask, T value, unsigned by, int width = 32,
                   deltad::emulator::Where where = deltad::emulator::Where::here()) {
  const auto lane = deltad::emulator::current->lane, w = static_cast<uint32_t>(width);
  return deltad::emulator::shuffle("__shfl_down_sync", mask, value,
                                   lane % w + by < w ? lane + by : lane, where);
}

template <class T>
T __shfl_up_sync(uint32_t mask, T value, unsigned by, int width = 32,
                 deltad::emulator::Where where = deltad::emulator::Where::here()) {
  const auto lane = deltad::emulator::current->lane, w = static_cast<uint32_t>(width);
  return deltad::emulator::shuffle("__shfl_up_sync", mask, value, lane % w >= by ? lane - by : lane,
                                   where);
}

inline uint32_t __ballot_sync(uint32_t mask, int vote,
                              deltad::emulator::Where where = deltad::emulator::Where::here()) {
  return deltad::emulator::ballot(mask, vote != 0, where);
}
inline int __any_sync(uint32_t mask, int vote,
                      deltad::emulator::Where where = deltad::emulator::Where::here()) {
  return deltad::emulator::ballot(mask, vote != 0, where) != 0;
}
inline int __all_sync(uint32_t mask, int vote,
                      deltad::emulator::Where where = deltad::emulator::Where::here()) {
  return deltad::emulator::ballot(mask, vote != 0, where) == mask;
}

inline int atomicAdd(int* p, int value,
                     deltad::emulator::Where where = deltad::emulator::Where::here()) {
  return deltad::emulator::atomic_add(p, value, where);
}
inline unsigned atomicAdd(unsigned* p, unsigned value,
                          deltad::emulator::Where where = deltad::emulator::Where::here()) {
  return deltad::emulator::atomic_add(p, value, where);
}
inline float atomicAdd(float* p, float value,
                       deltad::emulator::Where where = deltad::emulator::Where::here()) {
  return deltad::emulator::atomic_add(p, value, where);
}

inline uint32_t __float_as_uint(float f) { return std::bit_cast<uint32_t>(f); }
inline float __uint_as_float(uint32_t u) { return std::bit_cast<float>(u); }
inline uint64_t __umul64hi(uint64_t a, uint64_t b) {
  return static_cast<uint64_t>(static_cast<unsigned __int128>(a) * b >> 64);
}
inline int __popc(uint32_t u) { return std::popcount(u); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
