#include "backend/cuda/step_rows.h"

#include <algorithm>

#include "base/check.h"

namespace deltad {

int GroupedRows::levels(WeightId weight) const {
  int most = 0;
  for (const CudaVariantWeights* v : variants)
    if (v != nullptr) most = std::max(most, v->levels(weight));
  return most;
}

int32_t GroupedRows::ranks(WeightId weight) const {
  int32_t most = 0;
  for (const CudaVariantWeights* v : variants)
    if (v != nullptr) most = std::max(most, v->ranks(weight));
  return most;
}

int32_t GroupedRows::dense_outputs(WeightId weight) const {
  int32_t most = 0;
  for (const CudaVariantWeights* v : variants)
    if (v != nullptr && v->dense(weight).storage != nullptr)
      most = std::max(most, v->dense(weight).outputs());
  return most;
}

int32_t GroupedRows::dense_tiles(WeightId weight, int32_t tile_rows) const {
  int32_t tiles = 0;
  for (size_t g = 0; g < variants.size(); ++g)
    if (variants[g] != nullptr && variants[g]->dense(weight).storage != nullptr)
      tiles += cuda::row_tiles(groups[g].end_row - groups[g].first_row, tile_rows);
  return tiles;
}

Status StepRows::begin(const StepTables& tables,
                       std::span<const CudaVariantWeights* const> variants) {
  staging_.clear();
  ids_ = staging_.add(tables.ids);
  logit_rows_ = staging_.add(tables.logit_rows);
  RETURN_IF_ERROR(group(tables.groups, variants, all_));
  RETURN_IF_ERROR(group(tables.logit_groups, variants, logits_));
  place_rows(tables.spans);
  return staging_.send();
}

const GroupedRows& StepRows::grouped(std::span<const RowGroup> groups) const {
  if (groups.data() == all_.groups.data() && groups.size() == all_.groups.size()) return all_;
  CHECK(groups.data() == logits_.groups.data() && groups.size() == logits_.groups.size(),
        "groups that are not the step's");
  return logits_;
}

Status StepRows::group(std::span<const RowGroup> groups,
                       std::span<const CudaVariantWeights* const> variants, GroupedRows& out) {
  CHECK(groups.size() <= static_cast<size_t>(cuda::kMaxRowGroups), "too many groups of rows");
  out = GroupedRows{};
  out.groups = groups;
  for (const RowGroup& g : groups)
    out.variants.push_back(g.slot < 0 ? nullptr : variants[static_cast<size_t>(g.slot)]);
  out.slots.resize(groups.size());
  out.rows = groups.empty() ? 0 : groups.back().end_row;
  RETURN_IF_ERROR(slots_.assign(out.variants, out.slots));
  cuda::RowGroups table{};
  for (size_t g = 0; g < groups.size(); ++g)
    table.group[table.count++] = {groups[g].first_row, groups[g].end_row, out.slots[g]};
  out.table = staging_.add(std::span<const cuda::RowGroups>(&table, 1));
  return {};
}

void StepRows::place_rows(std::span<const SequenceSpan> spans) {
  std::vector<cuda::RowPlace> places;
  std::vector<int32_t> blocks;
  std::vector<cuda::PrefillTile> tiles;
  generated_.clear();
  for (const SequenceSpan& span : spans) {
    const int32_t rows = span.end_row - span.first_row;
    const int32_t end = span.first_position + rows;
    const auto first_block = static_cast<int32_t>(blocks.size());
    blocks.insert(blocks.end(), span.blocks,
                  span.blocks + (end + cuda::kKvTokens - 1) / cuda::kKvTokens);
    for (int32_t r = 0; r < rows; ++r) places.push_back({span.first_position + r, first_block});
    if (span.generated) {
      if (generated_.empty() || generated_.back().end != span.first_row)
        generated_.push_back({span.first_row, span.first_row, 0});
      generated_.back().end = span.end_row;
      generated_.back().longest = std::max(generated_.back().longest, end);
      continue;
    }
    for (int32_t r = 0; r < rows; r += cuda::kPrefillRows)
      tiles.push_back({span.first_row + r, std::min(cuda::kPrefillRows, rows - r),
                       span.first_position + r, first_block});
  }
  prompt_tiles_ = static_cast<int32_t>(tiles.size());
  places_ = staging_.add(std::span<const cuda::RowPlace>(places));
  blocks_ = staging_.add(std::span<const int32_t>(blocks));
  tiles_ = staging_.add(std::span<const cuda::PrefillTile>(tiles));
}

}  // namespace deltad
