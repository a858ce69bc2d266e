// Device code of the prefill kernels: tiles of W + Σ α·S in fp16, made in registers.
//
// A lane's 16 bytes of a base tile are eight columns of one output: just what it has of A, 16
// outputs being two tiles. bf16 → fp16: the magnitude times a power of two (which leaves its
// exponent in five bits), three places up, and the sign again. α, with the same power of two, gets
// its sign from the bit at the end of its half.
#pragma once

#include "kernels/cuda/device.h"
#include "kernels/cuda/linear_prefill.h"

namespace deltad::cuda {

// A lane's part of a tile's step of 32 columns, as it lies in memory.
template <int kLevels>
struct StepOfTile {
  uint4 base;
  uint32_t signs[kLevels > 0 ? kLevels : 1];  // of all 32 columns of the lane's output
};

// What A is made of: W + Σ α·S, or one of the two.
enum class PrefillPart : int32_t { kSum, kBase, kDelta };

template <int kTiles, int kLevels>
class PrefillWeights {
 public:
  using Step = StepOfTile<kLevels>;

  // tile[i]: of 8 outputs. Tiles beyond the last take it again; nobody stores what comes out.
  DELTAD_DEVICE PrefillWeights(const LinearPrefillParams& p, const int32_t (&tile)[kTiles])
      : base_(static_cast<const uint4*>(p.w)) {
    const auto lane = static_cast<int32_t>(threadIdx.x % 32);
    const int32_t last = p.outputs / kTileOutputs - 1, chunks = chunks_of(p.columns);
    blocks_ = prefill_blocks(p.columns);
    DELTAD_UNROLL
    for (int32_t i = 0; i < kTiles; ++i) {
      const int32_t there = in_bounds(tile[i] < last) ? tile[i] : last;
      base_at_[i] = static_cast<uint32_t>(there * chunks * kChunkSteps * 32 + lane);
      output_[i] = there * kTileOutputs + lane / 4;
    }
    // A tile's signs are a quarter as many words as its base is units; a lane's output's are 8 on.
    signs_at_ = static_cast<uint32_t>(lane / 4 * 7);
    factors_ = p.w_factors;
    first_bit_ = 7 - 2 * (lane % 4);
  }

  // A level that the variant does not have is α = 0 of any signs.
  DELTAD_DEVICE void set_variant(const LinearPrefillParams& p, int32_t slot) {
    const float scale = __uint_as_float(static_cast<uint32_t>(127 + p.w_exponent) << 23);
    DELTAD_UNROLL
    for (int32_t l = 0; l < kLevels; ++l) {
      const void* signs = slot < 0 ? nullptr : load_global(&p.slots[slot].signs[l]);
      signs_[l] = static_cast<const uint32_t*>(signs != nullptr ? signs : p.w);
      DELTAD_UNROLL
      for (int32_t i = 0; i < kTiles; ++i) {
        float alpha = 0;
        if (signs != nullptr) {
          alpha = load_global(load_global(&p.slots[slot].alpha[l]) + output_[i]);
        }
        alpha = __fmul_rn(alpha, scale);
        alpha_[l][i] = pack_f16x2(alpha, alpha);
      }
    }
  }

  // Step `step` (0 or 1) of a block of 64 columns, if there is such a block. The base's can be
  // asked for before the kernel before has ended.
  DELTAD_DEVICE void load_base(int32_t block, int32_t step, Step (&to)[kTiles]) const {
    if (!in_bounds(block < blocks_)) return;
    const uint32_t at = static_cast<uint32_t>(2 * block) * 32;
    DELTAD_UNROLL
    for (int32_t i = 0; i < kTiles; ++i) {
      to[i].base = load_global(base_ + (base_at_[i] + at) + 32 * step);
    }
  }
  DELTAD_DEVICE void load_signs(int32_t block, int32_t step, Step (&to)[kTiles]) const {
    if (!in_bounds(block < blocks_)) return;
    // Of a chunk's words of an output: those of lane t's first half, then of its second.
    const auto b = static_cast<uint32_t>(block);
    const uint32_t at = signs_at_ + b / 4 * 64 + b % 2 * 4 + b / 2 % 2;
    DELTAD_UNROLL
    for (int32_t i = 0; i < kTiles; ++i) {
      DELTAD_UNROLL
      for (int32_t l = 0; l < kLevels; ++l) {
        to[i].signs[l] = load_global(signs_[l] + (base_at_[i] / 4 + at) + 2 * step);
      }
    }
  }

  // Two k of 16 columns of A, its rows being outputs of tiles i and j.
  template <PrefillPart kPart>
  DELTAD_DEVICE void build(const Step (&step)[kTiles], int32_t i, int32_t j,
                           uint32_t (&a)[2][4]) const {
    uint32_t low[4], high[4];
    build_tile<kPart>(step[i], i, low);
    build_tile<kPart>(step[j], j, high);
    DELTAD_UNROLL
    for (int32_t k = 0; k < 2; ++k) {
      a[k][0] = low[2 * k], a[k][1] = high[2 * k];
      a[k][2] = low[2 * k + 1], a[k][3] = high[2 * k + 1];
    }
  }

 private:
  static constexpr uint32_t kSigns = 0x80008000u;

  // Columns 2t, 2t+1 | 2t+8, 2t+9 | 2t+16, 2t+17 | 2t+24, 2t+25 of the step.
  template <PrefillPart kPart>
  DELTAD_DEVICE void build_tile(const Step& step, int32_t i, uint32_t (&pairs)[4]) const {
    pairs[0] = weight<kPart, 0>(step, i, step.base.x);
    pairs[1] = weight<kPart, 1>(step, i, step.base.y);
    pairs[2] = weight<kPart, 2>(step, i, step.base.z);
    pairs[3] = weight<kPart, 3>(step, i, step.base.w);
  }

  template <PrefillPart kPart, int kPair>
  DELTAD_DEVICE uint32_t weight(const Step& step, int32_t i, uint32_t bf16) const {
    uint32_t w = 0;
    if (kPart != PrefillPart::kDelta) {
      const uint32_t magnitude = scale_magnitudes_bf16x2(bf16, factors_) << 3;
      w = lop3<0xea>(bf16, kSigns, magnitude);  // (a & b) | c
      if (kLevels == 0 || kPart == PrefillPart::kBase) return w;
    }
    uint32_t delta = signed_alpha<kPair>(step, i, 0);
    DELTAD_UNROLL
    for (int32_t l = 1; l < kLevels; ++l) {
      delta = add_f16x2(delta, signed_alpha<kPair>(step, i, l));
    }
    return kPart == PrefillPart::kDelta ? delta : add_f16x2(w, delta);
  }

  // Bits 2t + 8·kPair and the next go to the ends of the two halves, over the ends of bytes.
  template <int kPair>
  DELTAD_DEVICE uint32_t signed_alpha(const Step& step, int32_t i, int32_t l) const {
    const uint32_t even = step.signs[l] << first_bit_, odd = step.signs[l] << (first_bit_ - 1);
    const uint32_t bits = prmt(even, odd, 0x4000 + 0x1111 * kPair);
    return lop3<0xa6>(bits, kSigns, alpha_[l][i]);  // (~a & b) ^ c: a bit that is 0 is minus
  }

  const uint4* base_;
  const uint32_t* signs_[kLevels > 0 ? kLevels : 1] = {};
  uint32_t alpha_[kLevels > 0 ? kLevels : 1][kTiles] = {};  // both halves the same
  uint32_t base_at_[kTiles], signs_at_;                     // of the lane
  int32_t output_[kTiles];                                  // the lane's
  int32_t blocks_, first_bit_;
  uint32_t factors_;
};

}  // namespace deltad::cuda
