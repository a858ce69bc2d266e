// CudaVariantWeights: what one variant has beside the base, on the device, in one piece of memory.
// Filled by loader threads through the LoadRing and finished; then constant. Freed in the order of
// the load stream, after the steps that used it: no step waits for it. One that was finished can be
// copied to the host, and made again from that copy without reading or repacking anything.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "backend/cuda/cuda_variant_image.h"
#include "base/mutex.h"

namespace deltad {

class CudaVariantWeights final : public VariantWeights {
 public:
  static Result<std::unique_ptr<CudaVariantWeights>> make(const CudaLoading& loading,
                                                          const CudaWeights& base,
                                                          const VariantContent& content);
  // Of a variant that was copied to the host. cancelled: polled. Afterwards `image` is not in use.
  static Result<std::unique_ptr<CudaVariantWeights>> restore(const CudaLoading& loading,
                                                             const CudaWeights& base,
                                                             const CudaVariantImage& image,
                                                             const std::atomic<bool>& cancelled);
  ~CudaVariantWeights() override;

  Status put_sign_rows(WeightId weight, int part, int level, int64_t first, int64_t count,
                       const uint8_t* bits) override;
  Status put_alpha(WeightId weight, int part, int level, const float* alpha) override;
  Status put_dense_rows(WeightId weight, int part, int64_t first, int64_t count,
                        const uint16_t* values) override;
  Status put_low_rank(WeightId weight, int part, float scale, const float* a,
                      const float* b) override;
  void alias_weight(WeightId to, WeightId from) override;
  Status finish(const std::atomic<bool>* cancelled = nullptr) override;
  Result<std::unique_ptr<VariantImage>> copy_to_host() const override;
  size_t bytes() const override { return memory_.bytes(); }
  int64_t dense_rows(WeightId weight) const override { return dense(weight).rows; }

  // For the engine's thread, of a finished variant.
  uint64_t serial() const { return serial_; }  // of no other variant, not even of one freed before
  int levels(WeightId weight) const { return at(weight).content.levels; }
  int32_t ranks(WeightId weight) const {  // 0: no factors
    return low_ranks_[static_cast<size_t>(weight)].ranks;
  }
  const CudaMatrix& dense(WeightId weight) const {  // no storage: none
    return dense_[static_cast<size_t>(weight)];
  }
  // On the device: an entry a weight.
  const cuda::SignSlot* sign_entries() const {
    return memory_.at<const cuda::SignSlot>(plan_.sign_entries);
  }
  const cuda::DenseSlot* dense_entries() const {
    return memory_.at<const cuda::DenseSlot>(plan_.dense_entries);
  }
  const void* const* table_entries() const {
    return memory_.at<const void* const>(plan_.table_entries);
  }
  const cuda::LowRankSlot* low_rank_entries() const {
    return memory_.at<const cuda::LowRankSlot>(plan_.low_rank_entries);
  }
  const uint8_t* apart_entries() const {  // LinearPrefillParams::apart, of all weights
    return memory_.at<const uint8_t>(plan_.apart_entries);
  }

 private:
  CudaVariantWeights(const CudaLoading& loading, const CudaWeights& base);
  const CudaVariantPlace& at(WeightId weight) const {
    return plan_.weights[static_cast<size_t>(weight)];
  }
  Status take_memory();
  Status place();
  Status fill_from(const CudaVariantImage& image, const std::atomic<bool>& cancelled);
  Status put_entries();
  Status check_level(WeightId weight, int part, int level) const;
  Status copy_aliases();
  Status measure_dense();
  Result<std::vector<uint8_t>> apart(WeightId weight) const;

  const CudaLoading loading_;
  const CudaWeights& base_;
  const uint64_t serial_;
  CudaVariantPlan plan_;
  DeviceMemory memory_;
  std::vector<CudaMatrix> dense_;  // index: WeightId
  // What was put of scales of signs, until finish(): of each level, [outputs].
  std::vector<std::array<std::vector<float>, kMaxLevels>> alphas_;  // index: WeightId
  std::vector<cuda::LowRankSlot> low_ranks_;  // index: WeightId; with addresses
  Mutex mutex_;
  std::vector<std::pair<WeightId, WeightId>> aliases_ GUARDED_BY(mutex_);  // (to, from)
};

}  // namespace deltad
