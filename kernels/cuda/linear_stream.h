// Device code of the decode kernel: the weights' way from device memory into registers.
#pragma once

#include "kernels/cuda/device.h"
#include "kernels/cuda/linear_block.h"

namespace deltad::cuda {

// A warp's base tiles through its part of the ring: piece (chunk, step) lies in slot
// chunk % kDepth · 8 + step, and is copied when all but the last of the slots are under way. Every
// thread copies what it will itself read. A step commits one group of copies, an empty one where
// the columns end.
template <int kRows, int kLevels>
class BaseStream {
 public:
  static constexpr int32_t kDepth = linear_ring(kRows, kLevels) / kChunkSteps;  // chunks
  // All, except where nothing between them waits: there the loads of all would be hoisted.
  static constexpr int kUnrolledSteps = kDepth == 1 ? kChunkSteps : kChunkSteps / 2;

  DELTAD_DEVICE explicit BaseStream(const Block<kRows, kLevels>& block)
      : from_(static_cast<const uint4*>(block.w) +
              static_cast<int64_t>(block.tile * block.chunks + block.chunk0) * kChunkUnits +
              block.lane),
        ring_(block.ring + block.thread),
        active_(block.active) {}

  // Before the kernel before has ended: the L2 cache is to have what comes after the first `begun`
  // pieces of the ring.
  DELTAD_DEVICE void prefetch(const Block<kRows, kLevels>& block, int32_t begun) const {
    if (!active_ || block.lane != 0) return;
    prefetch_l2(from_ + begun * 32, static_cast<uint32_t>(kChunkUnits - begun * 32) * 16);
    DELTAD_UNROLL
    for (int32_t i = 1; i < kLinearPrefetch; ++i) {
      if (!in_bounds(block.chunk0 + i < block.chunk1)) return;
      prefetch_l2(from_ + i * kChunkUnits, kChunkUnits * 16);
    }
  }

  // Before the first chunk: piece i of those that set out at once, `there` being if its chunk is.
  DELTAD_DEVICE void start(int32_t i, bool there) {
    if (active_ && there) cp_async_16(ring_ + i * kSlot, from_ + i * 32);
    cp_async_commit();
  }

  // Within a chunk, the `turn`-th: a step's fragments, once they have come; refills the slot of the
  // step before, if `there`. What set out with a chunk's first step (activations of the next chunk
  // do) has come by its last.
  DELTAD_DEVICE uint4 next(int32_t turn, int32_t step, bool there) {
    constexpr int32_t kLast = kChunkSteps - 1;
    if (kDepth == 1 || step == kLast) cp_async_wait<kChunkSteps - 2>();
    const int32_t half = turn % kDepth, refill = step > 0 ? half : (turn + kDepth - 1) % kDepth;
    const uint4 value = load_shared(ring_ + (half * kChunkSteps + step) * kSlot);
    if (there) {
      const int32_t ahead = step > 0 ? kDepth * kChunkUnits + (step - 1) * 32
                                     : (kDepth - 1) * kChunkUnits + kLast * 32;
      cp_async_16(ring_ + (refill * kChunkSteps + (step + kLast) % kChunkSteps) * kSlot,
                  from_ + ahead);
    }
    cp_async_commit();
    return value;
  }
  DELTAD_DEVICE void end_chunk() { from_ += kChunkUnits; }

 private:
  static constexpr int32_t kChunkUnits = kChunkSteps * 32;  // 16 bytes each
  static constexpr int32_t kSlot = static_cast<int32_t>(kLinearThreads);

  const uint4* from_;  // the chunk that is being read
  const Shared<uint4> ring_;
  const bool active_;
};

// The signs' pieces, for each chunk one of each level of each group, through a ring of their own.
template <int kRows, int kLevels>
class SignStream {
 public:
  DELTAD_DEVICE SignStream(const Block<kRows, kLevels>& block, int32_t items)
      : block_(block),
        ring_(block.sign_ring + block.thread),
        items_(items),
        chunk_(items > 0 && block.active ? block.chunk0 : block.chunk1),
        from_((block.tile * block.chunks + block.chunk0) * 32 + block.lane) {}

  // Starts the next copy, if there is one left, as a group of its own in any case.
  DELTAD_DEVICE void copy() {
    if (in_bounds(chunk_ < block_.chunk1)) {
      const uint64_t tiles = load_shared(block_.item_signs + item_);
      cp_async_8(place(copy_to_), reinterpret_cast<const uint2*>(tiles) + from_);
      if (++item_ == items_) {
        item_ = 0;
        ++chunk_;
        from_ += 32;
      }
    }
    cp_async_commit();
    copy_to_ = (copy_to_ + 1) % kLinearSignRing;
  }

  // The next piece, the `most`-th of its chunk at most; refills the slot of the one before. Those
  // that set out in an earlier chunk have come with that chunk's last step of the base; a chunk
  // with more pieces than the ring waits for the others.
  DELTAD_DEVICE uint2 next(int32_t most) {
    if (most >= kLinearSignRing - 1) cp_async_wait<kLinearSignRing - 2>();
    // All slots but one are full: the one to copy to is that before the one to read.
    const uint2 value = load_shared(place((copy_to_ + 1) % kLinearSignRing));
    copy();
    return value;
  }

 private:
  DELTAD_DEVICE Shared<uint2> place(uint32_t slot) const {
    return ring_ + static_cast<int32_t>(slot * kLinearThreads);
  }

  const Block<kRows, kLevels>& block_;
  const Shared<uint2> ring_;
  const int32_t items_;       // a chunk
  int32_t chunk_, item_ = 0;  // of the next copy
  int32_t from_;              // of its chunk, from the start of a level's tiles
  uint32_t copy_to_ = 0;      // slot; unsigned, so that its remainder is a mask
};

}  // namespace deltad::cuda
