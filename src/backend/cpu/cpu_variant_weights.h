// CpuVariantWeights: what one variant does to the base's weights, in the layout of
// kernels/cpu/layout.h. All of it lies in one arena in the order in which the forward pass reads
// it: weight by weight, for each level α and then the signs, then low-rank factors, then a dense
// replacement. Filled by
// loader threads, immutable afterwards.
#pragma once

#include <array>
#include <functional>
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

// Memory of the low-rank factors of a (fused) weight, as kernels/cpu/low_rank.h has them.
struct CpuLowRank {
  std::vector<cpu::LowRankPart> parts;  // one a part of the weight; rank 0: no factors
  int64_t a_stride = 0;
  MemoryPiece used_parts, scale, a, b;
};

// What one variant does to one weight. Every step reads all of these once, and only these before
// the values themselves.
struct alignas(64) CpuWeightDelta {
  std::vector<CpuSignLevel> levels;  // empty: no sign part
  // Not null: replaces the base's weight. Levels add to it (their α is 0 in the replaced parts), so
  // a fused weight may have one part replaced and another compressed.
  std::shared_ptr<const CpuMatrix> dense;
  cpu::LowRank low_rank;  // adds to it, as the levels do; ranks 0: none
  bool nothing() const { return levels.empty() && !dense && low_rank.ranks == 0; }
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
  Status populate(const std::function<Status()>& after_each) override {
    return arena_.populate(after_each);
  }
  Status finish(const std::atomic<bool>* cancelled = nullptr) override;
  size_t bytes() const override { return arena_.bytes(); }
  int64_t dense_rows(WeightId weight) const override;

  const CpuWeightDelta& delta(WeightId weight) const {
    return deltas_[static_cast<size_t>(weight)];
  }
  // Calls for the deltas of the two weights after this one, which no cache holds by their turn.
  void prefetch_after(WeightId weight) const;

 private:
  struct Plan;
  explicit CpuVariantWeights(const CpuWeights& base)
      : base_(base), deltas_(base.count()), low_rank_(base.count()) {}
  static Result<Plan> plan(const CpuWeights& base, const VariantContent& content);
  void place(const Plan& plan);
  void place_low_rank(const Plan& plan);
  Result<const CpuSignLevel*> level_of(WeightId weight, int part, int level) const;

  const CpuWeights& base_;
  Arena arena_;
  std::vector<CpuWeightDelta> deltas_;  // index: WeightId
  std::vector<CpuLowRank> low_rank_;    // index: WeightId; what put_low_rank() fills
  Mutex mutex_;
  std::vector<std::pair<WeightId, WeightId>> aliases_ GUARDED_BY(mutex_);  // (to, from)
};

}  // namespace deltad
