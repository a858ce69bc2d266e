#include "calibrate/tune_rows.h"

#include <fmt/core.h>

namespace deltad {

Result<std::vector<double>> TuneRows::delta(const std::string& name, int64_t first, int64_t count,
                                            std::vector<uint16_t>* base) const {
  base->resize(static_cast<size_t>(count * shape(name)[1]));
  std::vector<double> delta(base->size());
  RETURN_IF_ERROR(base_.read_rows_bf16(name, first, count, base->data()));
  RETURN_IF_ERROR(tune_.delta_rows(name, first, count, base->data(), delta.data()));
  return delta;
}

Status TuneRows::not_finite(const std::string& name, int64_t row) const {
  return invalid_argument(
      fmt::format("{}: tensor '{}': row {} has a value that is not a finite number (or too large)",
                  tune_.path(), name, row));
}

}  // namespace deltad
