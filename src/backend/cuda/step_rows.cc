#include "backend/cuda/step_rows.h"

#include <algorithm>
#include <utility>

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

std::vector<GroupedRows::Run> GroupedRows::runs(WeightId weight) const {
  std::vector<Run> out;
  const void* before = nullptr;
  for (size_t g = 0; g < groups.size(); ++g) {
    const void* own = variants[g] == nullptr ? nullptr : variants[g]->dense(weight).storage;
    if (out.empty() || own != before) out.push_back({g, g});
    out.back().second = g + 1;
    before = own;
  }
  return out;
}

Status StepRows::begin(const StepTables& tables,
                       std::span<const CudaVariantWeights* const> variants, size_t weights) {
  staging_.clear();
  batch_.clear();
  logits_.clear();
  batch_groups_ = tables.groups;
  logit_groups_ = tables.logit_groups;
  RETURN_IF_ERROR(assign_slots(tables.groups, variants));

  place_of_.assign(tables.ids.size(), 0);
  row_places_.clear();
  block_table_.clear();
  prompt_tile_list_.clear();
  generated_rows_ = longest_context_ = 0;
  reordered_ = false;
  place(tables, true, variants);
  place(tables, false, variants);
  if (!tables.logit_groups.empty()) {
    GroupedRows& logits = logits_.emplace_back();
    for (const RowGroup& group : tables.logit_groups) add_group(logits, group, variants);
  }
  for (std::vector<GroupedRows>* pieces : {&batch_, &logits_})
    for (GroupedRows& piece : *pieces) piece.table = add_table(piece, {0, piece.groups.size()});
  run_tables_.clear();
  for (const GroupedRows& piece : batch_) {
    if (!piece.prompts) continue;
    for (size_t weight = 0; weight < weights; ++weight)
      for (const GroupedRows::Run& run : piece.runs(static_cast<WeightId>(weight)))
        if (!run_tables_.contains(run)) run_tables_[run] = add_table(piece, run);
  }
  send_rows(tables);
  return staging_.send();
}

std::span<const GroupedRows> StepRows::pieces(std::span<const RowGroup> groups) const {
  if (groups.data() == batch_groups_.data() && groups.size() == batch_groups_.size()) return batch_;
  CHECK(groups.data() == logit_groups_.data() && groups.size() == logit_groups_.size(),
        "groups that are not the step's");
  return logits_;
}

Status StepRows::assign_slots(std::span<const RowGroup> groups,
                              std::span<const CudaVariantWeights* const> variants) {
  std::vector<const CudaVariantWeights*> used;
  for (const RowGroup& group : groups)
    used.push_back(group.slot < 0 ? nullptr : variants[static_cast<size_t>(group.slot)]);
  std::vector<int32_t> slots(used.size());
  RETURN_IF_ERROR(slots_.assign(used, slots));
  device_slots_.assign(variants.size(), -1);
  for (size_t g = 0; g < groups.size(); ++g)
    if (groups[g].slot >= 0) device_slots_[static_cast<size_t>(groups[g].slot)] = slots[g];
  return {};
}

// Rows of a slot that continue the piece's last group become part of it.
void StepRows::add_group(GroupedRows& piece, const RowGroup& group,
                         std::span<const CudaVariantWeights* const> variants) const {
  const auto slot = static_cast<size_t>(group.slot);
  const int32_t on_device = group.slot < 0 ? -1 : device_slots_[slot];
  if (piece.groups.empty() || piece.groups.back().slot != on_device) {
    piece.groups.push_back({piece.rows, piece.rows, on_device});
    piece.variants.push_back(group.slot < 0 ? nullptr : variants[slot]);
  }
  piece.rows += group.end_row - group.first_row;
  piece.groups.back().end_row = piece.rows;
}

size_t StepRows::add_table(const GroupedRows& piece, const GroupedRows::Run& run) {
  CHECK(run.second - run.first <= static_cast<size_t>(cuda::kMaxRowGroups),
        "too many groups of rows");
  cuda::RowGroups table{};
  const int32_t first = piece.first_row(run);
  for (size_t g = run.first; g < run.second; ++g)
    table.group[table.count++] = {piece.groups[g].first_row - first,
                                  piece.groups[g].end_row - first, piece.groups[g].slot};
  return staging_.add(std::span<const cuda::RowGroups>(&table, 1));
}

void StepRows::place(const StepTables& tables, bool generated,
                     std::span<const CudaVariantWeights* const> variants) {
  GroupedRows piece;
  piece.prompts = !generated;
  piece.first = static_cast<int32_t>(row_places_.size());
  size_t g = 0;
  for (const SequenceSpan& span : tables.spans) {
    if (span.generated != generated) continue;
    while (span.first_row >= tables.groups[g].end_row) ++g;
    CHECK(span.end_row <= tables.groups[g].end_row, "a sequence of two variants");
    const auto first = static_cast<int32_t>(row_places_.size());
    for (int32_t r = span.first_row; r < span.end_row; ++r)
      place_of_[static_cast<size_t>(r)] = first + r - span.first_row;
    reordered_ |= first != span.first_row;
    add_group(piece, {span.first_row, span.end_row, tables.groups[g].slot}, variants);
    place_span(span, first);
  }
  if (piece.rows > 0) batch_.push_back(std::move(piece));
}

void StepRows::place_span(const SequenceSpan& span, int32_t first) {
  const int32_t rows = span.end_row - span.first_row, end = span.first_position + rows;
  const auto first_block = static_cast<int32_t>(block_table_.size());
  block_table_.insert(block_table_.end(), span.blocks,
                      span.blocks + (end + cuda::kKvTokens - 1) / cuda::kKvTokens);
  for (int32_t r = 0; r < rows; ++r) row_places_.push_back({span.first_position + r, first_block});
  if (span.generated) {
    generated_rows_ += rows;
    longest_context_ = std::max(longest_context_, end);
    return;
  }
  for (int32_t r = 0; r < rows; r += cuda::kPrefillRows)
    prompt_tile_list_.push_back(
        {first + r, std::min(cuda::kPrefillRows, rows - r), span.first_position + r, first_block});
}

void StepRows::send_rows(const StepTables& tables) {
  std::vector<int32_t> ids(tables.ids.size());
  for (size_t r = 0; r < ids.size(); ++r) ids[static_cast<size_t>(place_of_[r])] = tables.ids[r];
  std::vector<int32_t> logit_rows;
  for (const int32_t row : tables.logit_rows) logit_rows.push_back(place_of(row));
  prompt_tiles_ = static_cast<int32_t>(prompt_tile_list_.size());
  ids_ = staging_.add(std::span<const int32_t>(ids));
  logit_rows_ = staging_.add(std::span<const int32_t>(logit_rows));
  places_ = staging_.add(std::span<const cuda::RowPlace>(row_places_));
  blocks_ = staging_.add(std::span<const int32_t>(block_table_));
  tiles_ = staging_.add(std::span<const cuda::PrefillTile>(prompt_tile_list_));
}

}  // namespace deltad
