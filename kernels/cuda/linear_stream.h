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

  // The thread's 16 bytes of a slot; the half of them that signs use, such that lanes 0-7 and 8-15,
  // which are served together, are in different banks.
  DELTAD_DEVICE Shared<uint4> place(int32_t slot) const {
    return block.ring + (slot * static_cast<int32_t>(kLinearThreads) + block.thread);
  }
  DELTAD_DEVICE Shared<uint2> sign_place(int32_t slot) const {
    return shared_cast<uint2>(place(slot)) + block.lane / 8 % 2;
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
        cp_async_8(sign_place(copy_to), signs + 32 * at + block.lane);
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
  DELTAD_DEVICE uint4 next_base() {
    cp_async_wait<kLinearRing - 2>();
    const uint4 value = load_shared(place(read_from));
    advance();
    return value;
  }
  DELTAD_DEVICE uint2 next_signs() {
    cp_async_wait<kLinearRing - 2>();
    const uint2 value = load_shared(sign_place(read_from));
    advance();
    return value;
  }

 private:
  DELTAD_DEVICE void advance() {
    read_from = (read_from + 1) % kLinearRing;
    copy();
  }
};

}  // namespace deltad::cuda
