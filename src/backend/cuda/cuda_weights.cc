#include "backend/cuda/cuda_weights.h"

#include <fmt/core.h>

#include <utility>

#include "backend/weight_rows.h"
#include "base/log.h"
#include "kernels/cuda/linear_prefill.h"

namespace deltad {
// In the order of the specs, which is the order in which the forward pass reads them.
Status CudaWeights::declare(const std::vector<WeightSpec>& specs) {
  if (!specs_.empty()) return internal_error("the weights were declared already");
  std::vector<CudaMatrix> matrices(specs.size());
  std::vector<size_t> places(specs.size());
  CudaPlan plan;
  for (size_t i = 0; i < specs.size(); ++i) {
    RETURN_IF_ERROR(check_spec(specs, i));
    if (specs[i].columns > kMostCudaColumns)
      return unimplemented(fmt::format("{} has {} columns; the GPU's kernels take at most {}",
                                       specs[i].parts[0].name, specs[i].columns, kMostCudaColumns));
    if (specs[i].alias >= 0) continue;
    matrices[i].rows = rows_with(specs[i], specs[i].parts.back().rows);
    matrices[i].columns = specs[i].columns;
    places[i] = plan.add(storage_bytes(matrices[i], specs[i].kind));
  }
  RETURN_IF_ERROR(loading_.device.use());
  ASSIGN_OR_RETURN(memory_, DeviceMemory::make(loading_.device, loading_.device.load(),
                                               plan.bytes(), "the base's weights"));
  for (size_t i = 0; i < specs.size(); ++i)
    if (specs[i].alias < 0) matrices[i].storage = memory_.at<void>(places[i]);
  specs_ = specs;
  matrices_ = std::move(matrices);
  apart_at_.assign(1, 0);
  for (size_t i = 0; i < specs.size(); ++i)
    apart_at_.push_back(apart_at_.back() + static_cast<size_t>(cuda::apart_entries(
                                               matrix(static_cast<WeightId>(i)).outputs())));
  return {};
}

Status CudaWeights::put_rows(WeightId weight, int part, int64_t first, int64_t count,
                             const uint16_t* values) {
  RETURN_IF_ERROR(check_place(specs_, weight, part));
  const WeightSpec& s = spec(weight);
  const WeightPart& p = s.parts[static_cast<size_t>(part)];
  if (s.alias >= 0)
    return invalid_argument(
        fmt::format("{} has no memory of its own: it stands for weight {}", p.name, s.alias));
  RETURN_IF_ERROR(check_rows_of(s, part, p.rows, first, count));
  return put_values(loading_, matrices_[static_cast<size_t>(weight)], s, part, first, count,
                    values);
}

Status CudaWeights::finish() {
  std::vector<CudaMatrix*> measured;
  for (size_t i = 0; i < specs_.size(); ++i)
    if (specs_[i].kind == WeightKind::kMatrix && specs_[i].alias < 0)
      measured.push_back(&matrices_[i]);
  RETURN_IF_ERROR(measure_ranges(loading_, measured));
  uint64_t inexact = 0;
  for (const CudaMatrix* matrix : measured) inexact += matrix->range.inexact;
  if (inexact > 0)
    log_info("{} weights lose digits in fp16, in which prompts are computed", inexact);
  return loading_.ring.wait();
}

const CudaMatrix& CudaWeights::matrix(WeightId weight) const {
  const WeightId alias = spec(weight).alias;
  return matrices_[static_cast<size_t>(alias >= 0 ? alias : weight)];
}

}  // namespace deltad
