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

uint64_t GroupedRows::dense(WeightId weight) const {
  uint64_t own = 0;
  for (size_t g = 0; g < variants.size(); ++g)
    if (variants[g] != nullptr && variants[g]->dense(weight).storage != nullptr)
      own |= uint64_t{1} << g;
  return own;
}

Status StepRows::begin(const StepTables& tables,
                       std::span<const CudaVariantWeights* const> variants,
                       const CudaWeights& weights) {
  staging_.clear();
  ids_ = staging_.add(tables.ids);
  logit_rows_ = staging_.add(tables.logit_rows);
  RETURN_IF_ERROR(group(tables.groups, variants, weights, all_));
  RETURN_IF_ERROR(group(tables.logit_groups, variants, weights, logits_));
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
                       std::span<const CudaVariantWeights* const> variants,
                       const CudaWeights& weights, GroupedRows& out) {
  CHECK(groups.size() <= static_cast<size_t>(cuda::kMaxRowGroups), "too many groups of rows");
  out = GroupedRows{};
  out.groups = groups;
  for (const RowGroup& g : groups)
    out.variants.push_back(g.slot < 0 ? nullptr : variants[static_cast<size_t>(g.slot)]);
  out.slots.resize(groups.size());
  out.rows = groups.empty() ? 0 : groups.back().end_row;
  RETURN_IF_ERROR(slots_.assign(out.variants, out.slots));
  out.table = add_groups(out, 0, groups.size());
  add_runs(weights, out);
  return {};
}

// A table of groups first … end − 1, with rows counted from the first one's first.
size_t StepRows::add_groups(const GroupedRows& rows, size_t first, size_t end) {
  cuda::RowGroups table{};
  const int32_t from = first < end ? rows.groups[first].first_row : 0;
  for (size_t g = first; g < end; ++g)
    table.group[table.count++] = {rows.groups[g].first_row - from, rows.groups[g].end_row - from,
                                  rows.slots[g]};
  return staging_.add(std::span<const cuda::RowGroups>(&table, 1));
}

// For every weight that some group replaces; most weights that are replaced are so by the same.
void StepRows::add_runs(const CudaWeights& weights, GroupedRows& out) {
  for (size_t id = 0; id < weights.specs().size(); ++id) {
    if (weights.specs()[id].kind != WeightKind::kMatrix) continue;
    const uint64_t own = out.dense(static_cast<WeightId>(id));
    if (own == 0 || out.runs.count(own) > 0) continue;
    std::vector<GroupedRows::Run>& runs = out.runs[own];
    const size_t count = out.groups.size();
    for (size_t g = 0; g < count;) {
      size_t end = g + 1;
      const bool replaced = (own >> g & 1) != 0;
      if (!replaced)
        while (end < count && (own >> end & 1) == 0) ++end;
      runs.push_back({out.groups[g].first_row, out.groups[end - 1].end_row,
                      replaced ? out.variants[g] : nullptr, add_groups(out, g, end)});
      g = end;
    }
  }
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
