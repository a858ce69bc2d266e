// CpuWeights: the base's resident weights on the CPU, all in one arena. Filled by loader threads,
// immutable afterwards.
#pragma once

#include <vector>

#include "backend/cpu/cpu_matrix.h"

namespace deltad {

class CpuWeights {
 public:
  Status declare(const std::vector<WeightSpec>& specs);
  Status put_rows(WeightId weight, int part, int64_t first, int64_t count, const uint16_t* values);
  const std::vector<WeightSpec>& specs() const { return specs_; }
  const WeightSpec& spec(WeightId weight) const { return specs_[static_cast<size_t>(weight)]; }
  size_t count() const { return specs_.size(); }
  // Of an alias, the matrix it stands for.
  const CpuMatrix& matrix(WeightId weight) const;
  size_t bytes() const { return arena_.bytes(); }

 private:
  std::vector<WeightSpec> specs_;
  std::vector<CpuMatrix> matrices_;
  Arena arena_;
};

}  // namespace deltad
