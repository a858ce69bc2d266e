// Device code of the decode kernel: the weights' way from device memory into registers.
#pragma once

#include "kernels/cuda/device.h"
#include "kernels/cuda/linear_block.h"

namespace deltad::cuda {

// The stream of a warp's weights through its part of the ring: for each chunk eight pieces of the
// base, then a piece for each level of each group. Every thread copies what it will itself read.
template <int kRows, int kLevels>
class Stream {
 public:
  DELTAD_DEVICE Stream(const LinearParams& p, const Block<kRows, kLevels>& block)
      : block_(block), chunk_(block.chunk0) {
    const int32_t tile_chunk = block.tile * block.chunks + block.chunk0;
    base_ = static_cast<const uint4*>(p.w) + static_cast<int64_t>(tile_chunk) * kChunkSteps * 32 +
            block.lane;
    signs_ = tile_chunk * 32 + block.lane;
  }

  // Levels of groups in the block: known once its rows have been looked at.
  DELTAD_DEVICE void set_items(int32_t items) { items_ = items; }
  DELTAD_DEVICE int32_t pieces() const { return kChunkSteps + items_; }  // a chunk

  // Starts the next copy, if there is one left, as a group of its own in any case.
  DELTAD_DEVICE void copy() {
    if (block_.active && in_bounds(chunk_ < block_.chunk1)) {
      if (piece_ < kChunkSteps) {
        cp_async_16(place(copy_to_), base_);
        base_ += 32;
      } else {
        const uint64_t tiles = load_shared(block_.item_signs + (piece_ - kChunkSteps));
        cp_async_8(sign_place(copy_to_), reinterpret_cast<const uint2*>(tiles) + signs_);
      }
      if (++piece_ == pieces()) {
        piece_ = 0;
        ++chunk_;
        signs_ += 32;
      }
    }
    cp_async_commit();
    copy_to_ = (copy_to_ + 1) % kLinearRing;
  }

  // The next piece, once it has come; refills the place of the one before.
  DELTAD_DEVICE uint4 next_base() {
    cp_async_wait<kLinearRing - 2>();
    const uint4 value = load_shared(place(read_from_));
    advance();
    return value;
  }
  DELTAD_DEVICE uint2 next_signs() {
    cp_async_wait<kLinearRing - 2>();
    const uint2 value = load_shared(sign_place(read_from_));
    advance();
    return value;
  }

 private:
  // The thread's 16 bytes of a slot; the half of them that signs use, such that lanes 0-7 and 8-15,
  // which are served together, are in different banks.
  DELTAD_DEVICE Shared<uint4> place(uint32_t slot) const {
    return block_.ring + (static_cast<int32_t>(slot * kLinearThreads) + block_.thread);
  }
  DELTAD_DEVICE Shared<uint2> sign_place(uint32_t slot) const {
    return shared_cast<uint2>(place(slot)) + block_.lane / 8 % 2;
  }
  DELTAD_DEVICE void advance() {
    read_from_ = (read_from_ + 1) % kLinearRing;
    copy();
  }

  const Block<kRows, kLevels>& block_;
  const uint4* base_;  // the next copy, if of the base
  int32_t signs_;      // of the next chunk to copy, from the start of a level's tiles
  int32_t items_ = 0;
  int32_t chunk_, piece_ = 0;  // of the next copy
  // Slots; unsigned, so that their remainder is a mask.
  uint32_t copy_to_ = 0, read_from_ = 0;
};

}  // namespace deltad::cuda
