// CudaWeights: the base's resident weights on the device, all in one piece of memory. Filled by
// loader threads, immutable afterwards.
#pragma once

#include <vector>

#include "backend/cuda/cuda_matrix.h"
#include "tensor/buffer.h"

namespace deltad {

class CudaWeights {
 public:
  explicit CudaWeights(const CudaLoading& loading) : loading_(loading) {}

  Status declare(const std::vector<WeightSpec>& specs);
  // After the last put_rows: waits, and measures what was put.
  Status finish();
  Status put_rows(WeightId weight, int part, int64_t first, int64_t count, const uint16_t* values);

  const std::vector<WeightSpec>& specs() const { return specs_; }
  const WeightSpec& spec(WeightId weight) const { return specs_[static_cast<size_t>(weight)]; }
  // Of an alias, the matrix it stands for.
  const CudaMatrix& matrix(WeightId weight) const;
  // LinearPrefillParams::apart of all weights, one after the other: where a weight's begin, and how
  // many there are.
  size_t apart_at(WeightId weight) const { return apart_at_[static_cast<size_t>(weight)]; }
  size_t apart_entries() const { return apart_at_.back(); }
  size_t bytes() const { return memory_.bytes(); }

 private:
  const CudaLoading loading_;
  std::vector<WeightSpec> specs_;
  std::vector<CudaMatrix> matrices_;
  std::vector<size_t> apart_at_;  // index: WeightId; and the end of all
  DeviceMemory memory_;
};

}  // namespace deltad
