// StepRows: the rows of a step as the kernels want them, on the device: who they belong to, where
// in their sequences they stand, which kernels they take. Made anew by begin_step. Owned by
// CudaOps; the engine's thread.
//
// Generated rows come first here, then those of prompts, each sorted by variant as they were: so
// what has kernels for each is two pieces of the batch, and what takes rows one by one sees no
// difference.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "backend/cuda/slot_tables.h"
#include "backend/cuda/step_staging.h"
#include "backend/ops.h"
#include "kernels/cuda/attention_prefill.h"
#include "kernels/cuda/kv_cache.h"

namespace deltad {

// Rows of a batch that lie side by side and take the same kernels: its generated ones, those of
// prompts, or those gathered for logits; with the groups that cover them.
struct GroupedRows {
  bool prompts = false;
  int32_t first = 0;  // among the batch's; what follows counts from here
  int32_t rows = 0;
  std::vector<cuda::RowGroup> groups;               // slots are those on the device
  std::vector<const CudaVariantWeights*> variants;  // of each group; null: the base
  size_t table = 0;                                 // place of a RowGroups of all groups

  int levels(WeightId weight) const;     // the most of a group
  int32_t ranks(WeightId weight) const;  // the same
  // Of groups that have a matrix of their own: its outputs, the most; tiles of so many rows.
  int32_t dense_outputs(WeightId weight) const;
  int32_t dense_tiles(WeightId weight, int32_t tile_rows) const;

  // Groups [first, end) one after the other that read the same matrix of a weight: the base's, or
  // one variant's own.
  using Run = std::pair<size_t, size_t>;
  std::vector<Run> runs(WeightId weight) const;
  int32_t first_row(const Run& run) const { return groups[run.first].first_row; }
  int32_t end_row(const Run& run) const { return groups[run.second - 1].end_row; }
};

class StepRows {
 public:
  StepRows(CudaDevice& device, SlotTables& slots) : staging_(device), slots_(slots) {}

  // variants[s]: bound to slot s of the step; weights: how many there are.
  Status begin(const StepTables& tables, std::span<const CudaVariantWeights* const> variants,
               size_t weights);

  // The pieces of the batch, or of what is gathered for logits, that these groups cover; they are
  // the step's own.
  std::span<const GroupedRows> pieces(std::span<const RowGroup> groups) const;

  // The batch's row r is row place_of(r) here.
  bool reordered() const { return reordered_; }
  int32_t place_of(int32_t row) const { return place_of_[static_cast<size_t>(row)]; }

  // Rows of the batch's first piece, if it is of generated rows, and the longest of their contexts.
  int32_t generated_rows() const { return generated_rows_; }
  int32_t longest_context() const { return longest_context_; }
  int32_t prompt_tiles() const { return prompt_tiles_; }

  const int32_t* ids() const { return staging_.at<int32_t>(ids_); }
  const int32_t* logit_rows() const { return staging_.at<int32_t>(logit_rows_); }
  const cuda::RowPlace* places() const { return staging_.at<cuda::RowPlace>(places_); }
  const int32_t* blocks() const { return staging_.at<int32_t>(blocks_); }
  const cuda::PrefillTile* tiles() const { return staging_.at<cuda::PrefillTile>(tiles_); }
  const cuda::RowGroups* groups_of(const GroupedRows& rows) const {
    return staging_.at<cuda::RowGroups>(rows.table);
  }
  // Of a run of the prompts' groups; rows count from the run's first.
  const cuda::RowGroups* groups_of(const GroupedRows::Run& run) const {
    return staging_.at<cuda::RowGroups>(run_tables_.at(run));
  }
  size_t device_bytes() const { return staging_.device_bytes(); }

 private:
  Status assign_slots(std::span<const RowGroup> groups,
                      std::span<const CudaVariantWeights* const> variants);
  void add_group(GroupedRows& piece, const RowGroup& group,
                 std::span<const CudaVariantWeights* const> variants) const;
  size_t add_table(const GroupedRows& piece, const GroupedRows::Run& run);
  // The rows of spans of one kind, after those that are placed.
  void place(const StepTables& tables, bool generated,
             std::span<const CudaVariantWeights* const> variants);
  void place_span(const SequenceSpan& span, int32_t first);
  void send_rows(const StepTables& tables);

  StepStaging staging_;
  SlotTables& slots_;
  std::vector<int32_t> device_slots_;  // of the step's slots
  std::vector<GroupedRows> batch_, logits_;
  std::map<GroupedRows::Run, size_t> run_tables_;
  std::vector<int32_t> place_of_;
  bool reordered_ = false;
  std::vector<cuda::RowPlace> row_places_;
  std::vector<int32_t> block_table_;
  std::vector<cuda::PrefillTile> prompt_tile_list_;
  std::span<const RowGroup> batch_groups_, logit_groups_;
  int32_t generated_rows_ = 0, longest_context_ = 0, prompt_tiles_ = 0;
  size_t ids_ = 0, logit_rows_ = 0, places_ = 0, blocks_ = 0, tiles_ = 0;
};

}  // namespace deltad
