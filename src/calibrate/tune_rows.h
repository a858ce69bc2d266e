// TuneRows: Δ of a fine-tune's matrices as calibration reads it, a block of rows at a time. Holds
// nothing; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "delta/tune.h"
#include "model/checkpoint.h"

namespace deltad {

class TuneRows {
 public:
  // Both outlive it.
  TuneRows(const Checkpoint& base, const Tune& tune) : base_(base), tune_(tune) {}

  const Shape& shape(const std::string& name) const { return tune_.tensors().at(name).shape; }
  // Δ [count, d_in] of rows [first, first+count), and W [count, d_in] in bf16 beside it.
  Result<std::vector<double>> delta(const std::string& name, int64_t first, int64_t count,
                                    std::vector<uint16_t>* base) const;
  Status not_finite(const std::string& name, int64_t row) const;
  const std::string& path() const { return tune_.path(); }

 private:
  const Checkpoint& base_;
  const Tune& tune_;
};

}  // namespace deltad
