#include "backend/cuda/cuda_variant_plan.h"

#include <fmt/core.h>

namespace deltad {
namespace {

int64_t pad(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// Parts and ranks as the kernels want them; returns the values of B.
int64_t lay_out_factors(const WeightSpec& spec, CudaVariantPlace& place) {
  cuda::LowRankSlot& slot = place.low_rank;
  int64_t values = 0;
  place.parts_of.assign(spec.parts.size(), -1);
  for (size_t p = 0; p < spec.parts.size(); ++p) {
    if (place.content.ranks[p] == 0) continue;
    const PartTiles tiles = tiles_of(spec, static_cast<int>(p));
    cuda::LowRankPart& part = slot.part[slot.parts];
    place.parts_of[p] = slot.parts++;
    part.first_tile = static_cast<int32_t>(tiles.first);
    part.step = static_cast<int32_t>(tiles.step);
    part.tiles = static_cast<int32_t>(WeightSpec::pad(spec.parts[p].rows) / 16);
    part.first_rank = slot.ranks;
    part.rank = static_cast<int32_t>(pad(place.content.ranks[p], cuda::kRankStep));
    part.b = values;
    slot.ranks += part.rank;
    values += int64_t{16} * part.tiles * part.rank;
  }
  slot.a_stride = pad(spec.columns, 32);
  return values;
}

}  // namespace

Result<CudaVariantPlan> plan_cuda_variant(const CudaWeights& base, const VariantContent& content) {
  ASSIGN_OR_RETURN(std::vector<WeightContent> contents, content_by_weight(base.specs(), content));
  CudaVariantPlan plan;
  CudaPlan memory;
  const size_t count = contents.size();
  plan.sign_entries = memory.add(count * sizeof(cuda::SignSlot));
  plan.dense_entries = memory.add(count * sizeof(cuda::DenseSlot));
  plan.table_entries = memory.add(count * sizeof(void*));
  plan.low_rank_entries = memory.add(count * sizeof(cuda::LowRankSlot));
  plan.apart_entries = memory.add(base.apart_entries());
  plan.weights.resize(count);
  for (size_t id = 0; id < count; ++id) {
    const WeightSpec& spec = base.spec(static_cast<WeightId>(id));
    const CudaMatrix& m = base.matrix(static_cast<WeightId>(id));
    CudaVariantPlace& place = plan.weights[id];
    place.content = std::move(contents[id]);
    for (size_t l = 0; l < static_cast<size_t>(place.content.levels); ++l) {
      place.alpha[l] = memory.add(static_cast<size_t>(m.outputs()) * sizeof(float));
      place.signs[l] = memory.add(
          static_cast<size_t>(cuda::sign_tiles_size(m.outputs(), static_cast<int32_t>(m.columns))) *
          8);
    }
    if (!place.content.ranks.empty()) {
      if (spec.parts.size() > static_cast<size_t>(cuda::kMaxLowRankParts))
        return unimplemented(
            fmt::format("{}: factors of {} fused tensors, at most {} are supported",
                        spec.parts[0].name, spec.parts.size(), cuda::kMaxLowRankParts));
      const int64_t b_values = lay_out_factors(spec, place);
      const auto ranks = static_cast<size_t>(place.low_rank.ranks);
      place.scale = memory.add(ranks * sizeof(float));
      place.a = memory.add(ranks * static_cast<size_t>(place.low_rank.a_stride) * sizeof(uint16_t));
      place.b = memory.add(static_cast<size_t>(b_values) * sizeof(uint16_t));
    }
    if (!place.content.replaced.empty()) {
      place.dense.rows = place.content.dense_rows;
      place.dense.columns = spec.columns;
      place.dense_at = memory.add(storage_bytes(place.dense, spec.kind));
    }
  }
  plan.bytes = memory.bytes();
  return plan;
}

}  // namespace deltad
