#include "merge/merged_tune.h"

#include <vector>

#include "delta/float_codec.h"
#include "tensor/float16.h"

namespace deltad {

Status MergedTune::value_rows(const std::string& name, int64_t first, int64_t count,
                              float* values) const {
  const TunedTensor& tensor = tensors_.at(name);
  const int64_t n = count * columns_of(tensor.shape);
  std::vector<uint16_t> base(static_cast<size_t>(n));
  std::vector<double> delta(base.size());
  RETURN_IF_ERROR(base_rows(base_, name, first, count, base.data()));
  RETURN_IF_ERROR(merged_rows(name, first, count, delta.data()));
  for (int64_t i = 0; i < n; ++i) {
    const auto at = static_cast<size_t>(i);
    const double value = static_cast<double>(bf16_to_f32(base[at])) + delta[at];
    values[i] =
        tensor.type == DType::kBF16 ? bf16_to_f32(f64_to_bf16(value)) : static_cast<float>(value);
  }
  return {};
}

}  // namespace deltad
