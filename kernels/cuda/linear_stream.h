// Device code of the decode kernel: the weights' way from device memory into registers.
#pragma once

#include "kernels/cuda/device.h"
#include "kernels/cuda/linear_block.h"

namespace deltad::cuda {

// The stream of a warp's weights through its part of the ring: for each chunk eight pieces of the
// base, then a piece for each level of each group. Every thread copies what it will itself read.
template <int kRows, int kLevels>
struct Stream {
  const Block<kRows, kLevels>& block;
  const uint4* base;
  int32_t items;         // of signs, a chunk
  int32_t chunk, piece;  // of the next copy
  int32_t copy_to = 0, read_from = 0;

  DELTAD_DEVICE Shared<uint4> place(int32_t slot) const {
    return block.ring + (slot * static_cast<int32_t>(kLinearThreads) + block.thread);
  }

  // Starts the next copy, if there is one left, as a group of its own in any case.
  DELTAD_DEVICE void copy() {
    if (block.active && in_bounds(chunk < block.chunk1)) {
      if (piece < kChunkSteps) {
        const int64_t at =
            (static_cast<int64_t>(block.tile) * block.chunks + chunk) * kChunkSteps + piece;
        cp_async_16(place(copy_to), base + 32 * at + block.lane);
      } else {
        const auto* signs =
            reinterpret_cast<const uint2*>(load_shared(block.item_signs + (piece - kChunkSteps)));
        const int64_t at = static_cast<int64_t>(block.tile) * block.chunks + chunk;
        cp_async_8(place(copy_to), signs + 32 * at + block.lane);
      }
      if (++piece == kChunkSteps + items) {
        piece = 0;
        ++chunk;
      }
    }
    cp_async_commit();
    copy_to = (copy_to + 1) % kLinearRing;
  }

  // The next piece, once it has come; refills the place of the one before.
  template <class T>
  DELTAD_DEVICE T next() {
    cp_async_wait<kLinearRing - 2>();
    const T value = load_shared(shared_cast<T>(place(read_from)));
    read_from = (read_from + 1) % kLinearRing;
    copy();
    return value;
  }
};

}  // namespace deltad::cuda
