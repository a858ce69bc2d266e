// Resident weights on the CPU, in the layout of kernels/cpu/layout.h: the base's (CpuWeights) and
// what one variant does to them (CpuVariantWeights). Filled by loader threads, immutable
// afterwards.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "base/mutex.h"

namespace deltad {

// A packed matrix, or a vector of fp32 (values rounded to bf16).
struct CpuMatrix {
  Buffer storage;  // bf16 in tiles, or fp32 [rows] for a vector
  int64_t rows =
      0;  // unpadded rows of the last part's end; for an embedding or head the vocabulary
  int64_t padded_rows = 0;  // all rows, padding included (a multiple of 16)
  int64_t columns = 0;      // d_in
  int64_t padded_columns = 0;
};

struct CpuSignLevel {
  std::shared_ptr<Buffer> bits;   // uint64 words in tiles, of the whole (fused) weight
  std::shared_ptr<Buffer> alpha;  // fp32 [padded rows]; 0 where a part has no such level
};

// What one variant does to one weight.
struct CpuWeightDelta {
  std::vector<CpuSignLevel> levels;  // empty: no sign part
  // Not null: replaces the base's weight. Levels add to it (their α is 0 in the replaced parts), so
  // a fused weight may have one part replaced and another compressed.
  std::shared_ptr<const CpuMatrix> dense;
  bool nothing() const { return levels.empty() && !dense; }
};

class CpuWeights {
 public:
  Status declare(const std::vector<WeightSpec>& specs);
  Status put_rows(WeightId weight, int part, int64_t first, int64_t count, const uint16_t* values);
  const WeightSpec& spec(WeightId weight) const { return specs_[static_cast<size_t>(weight)]; }
  size_t count() const { return specs_.size(); }
  // Of an alias, the matrix it stands for.
  const CpuMatrix& matrix(WeightId weight) const;
  size_t bytes() const;

 private:
  std::vector<WeightSpec> specs_;
  std::vector<CpuMatrix> matrices_;
};

class CpuVariantWeights final : public VariantWeights {
 public:
  explicit CpuVariantWeights(const CpuWeights& base);
  static size_t bytes_of(const CpuWeights& base, const std::vector<WeightChange>& changes);
  Status put_sign_rows(WeightId weight, int part, int level, int64_t first, int64_t count,
                       const uint8_t* bits) override;
  Status put_alpha(WeightId weight, int part, int level, const float* alpha) override;
  Status begin_dense(WeightId weight, int part, int64_t rows) override;
  Status put_dense_rows(WeightId weight, int part, int64_t first, int64_t count,
                        const uint16_t* values) override;
  void alias_dense(WeightId to, WeightId from) override;
  Status finish() override;
  size_t bytes() const override;
  int64_t dense_rows(WeightId weight) const override;

  const CpuWeightDelta& delta(WeightId weight) const {
    return deltas_[static_cast<size_t>(weight)];
  }

 private:
  Result<const CpuSignLevel*> level_of(WeightId weight, int level);

  const CpuWeights& base_;
  Mutex mutex_;  // of what put_* create on first use; the rows themselves are disjoint
  std::vector<CpuWeightDelta> deltas_;  // index: WeightId
  std::vector<std::shared_ptr<CpuMatrix>>
      replaced_;  // index: WeightId; the same objects, not const
  std::vector<std::pair<WeightId, WeightId>> aliases_ GUARDED_BY(mutex_);  // (to, from)
};

}  // namespace deltad
