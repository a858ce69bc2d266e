// CpuVariantWeights: what one variant does to the base's weights, in the layout of
// kernels/cpu/layout.h. All of it lies in one arena in the order in which the forward pass reads
// it: weight by weight, for each level α and then the signs, then low-rank factors, then a dense
// replacement. Filled by
// loader threads, immutable afterwards.
#pragma once

#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/cpu_weights.h"
#include "base/mutex.h"
#include "kernels/cpu/low_rank.h"

namespace deltad {

struct CpuSignLevel {
  MemoryPiece bits;   // uint64 words in tiles, of the whole (fused) weight
  MemoryPiece alpha;  // fp32 [padded rows]; 0 where a part has no such level
};

// Low-rank factors of a (fused) weight, as kernels/cpu/low_rank.h has them.
struct CpuLowRank {
  struct Part {
    int32_t first = 0, rank = 0;  // ranks [first, first + rank) are this part's
  };
  std::vector<Part> parts;
  MemoryPiece a, scale, b, tiles;
  int64_t a_stride = 0;

  int32_t ranks() const { return parts.back().first + parts.back().rank; }
  cpu::LowRank factors() const {
    return {ranks(),           a.as<uint16_t>(), a_stride,
            scale.as<float>(), b.as<uint16_t>(), tiles.as<cpu::LowRankTile>()};
  }
};

// What one variant does to one weight.
struct CpuWeightDelta {
  std::vector<CpuSignLevel> levels;  // empty: no sign part
  // Not null: replaces the base's weight. Levels add to it (their α is 0 in the replaced parts), so
  // a fused weight may have one part replaced and another compressed.
  std::shared_ptr<const CpuMatrix> dense;
  std::shared_ptr<const CpuLowRank> low_rank;  // adds to it, as the levels do
  bool nothing() const { return levels.empty() && !dense && !low_rank; }
};

class CpuVariantWeights final : public VariantWeights {
 public:
  // base outlives it. kInvalidArgument if the base has no place for some of the content;
  // kResourceExhausted if there is no memory.
  static Result<std::unique_ptr<CpuVariantWeights>> make(const CpuWeights& base,
                                                         const VariantContent& content);
  // What make() takes.
  static Result<size_t> bytes_of(const CpuWeights& base, const VariantContent& content);

  Status put_sign_rows(WeightId weight, int part, int level, int64_t first, int64_t count,
                       const uint8_t* bits) override;
  Status put_alpha(WeightId weight, int part, int level, const float* alpha) override;
  Status put_dense_rows(WeightId weight, int part, int64_t first, int64_t count,
                        const uint16_t* values) override;
  Status put_low_rank(WeightId weight, int part, float scale, const float* a,
                      const float* b) override;
  void alias_weight(WeightId to, WeightId from) override;
  Status finish() override;
  size_t bytes() const override { return arena_.bytes(); }
  int64_t dense_rows(WeightId weight) const override;

  const CpuWeightDelta& delta(WeightId weight) const {
    return deltas_[static_cast<size_t>(weight)];
  }

 private:
  struct Plan;
  explicit CpuVariantWeights(const CpuWeights& base) : base_(base), deltas_(base.count()) {}
  static Result<Plan> plan(const CpuWeights& base, const VariantContent& content);
  static Status plan_low_rank(const CpuWeights& base, const VariantContent& content, Plan* plan);
  void place(const Plan& plan);
  Result<const CpuSignLevel*> level_of(WeightId weight, int part, int level) const;

  const CpuWeights& base_;
  Arena arena_;
  std::vector<CpuWeightDelta> deltas_;  // index: WeightId
  Mutex mutex_;
  std::vector<std::pair<WeightId, WeightId>> aliases_ GUARDED_BY(mutex_);  // (to, from)
};

}  // namespace deltad
