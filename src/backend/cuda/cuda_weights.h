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
  size_t bytes() const { return memory_.bytes(); }

 private:
  const CudaLoading loading_;
  std::vector<WeightSpec> specs_;
  std::vector<CudaMatrix> matrices_;
  DeviceMemory memory_;
};

}  // namespace deltad
