// StepRows: the rows of a step as the kernels want them, on the device: who they belong to, where
// in their sequences they stand, which attention they take. Made anew by begin_step. Owned by
// CudaOps; the engine's thread.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/cuda/slot_tables.h"
#include "backend/cuda/step_staging.h"
#include "backend/ops.h"
#include "kernels/cuda/attention_prefill.h"
#include "kernels/cuda/kv_cache.h"

namespace deltad {

// Rows of a batch, or those gathered for logits, with the groups that cover them.
struct GroupedRows {
  std::span<const RowGroup> groups;                 // as the step has them
  std::vector<const CudaVariantWeights*> variants;  // of each group; null: the base
  std::vector<int32_t> slots;                       // of each group, on the device; −1: the base
  int32_t rows = 0;
  size_t table = 0;  // place of a RowGroups

  int levels(WeightId weight) const;     // the most of a group
  int32_t ranks(WeightId weight) const;  // the same
  // Of groups that have a matrix of their own: its outputs, the most; tiles of so many rows.
  int32_t dense_outputs(WeightId weight) const;
  int32_t dense_tiles(WeightId weight, int32_t tile_rows) const;
};

class StepRows {
 public:
  StepRows(CudaDevice& device, SlotTables& slots) : staging_(device), slots_(slots) {}

  // variants[s]: bound to slot s of the step.
  Status begin(const StepTables& tables, std::span<const CudaVariantWeights* const> variants);

  // The rows that these groups cover; they are the step's own.
  const GroupedRows& grouped(std::span<const RowGroup> groups) const;

  struct GeneratedRows {
    int32_t first, end;
    int32_t longest;  // positions of the longest context among them
  };
  const std::vector<GeneratedRows>& generated() const { return generated_; }
  int32_t prompt_tiles() const { return prompt_tiles_; }

  const int32_t* ids() const { return staging_.at<int32_t>(ids_); }
  const int32_t* logit_rows() const { return staging_.at<int32_t>(logit_rows_); }
  const cuda::RowPlace* places() const { return staging_.at<cuda::RowPlace>(places_); }
  const int32_t* blocks() const { return staging_.at<int32_t>(blocks_); }
  const cuda::PrefillTile* tiles() const { return staging_.at<cuda::PrefillTile>(tiles_); }
  const cuda::RowGroups* groups_at(size_t place) const {
    return staging_.at<cuda::RowGroups>(place);
  }
  size_t device_bytes() const { return staging_.device_bytes(); }

 private:
  Status group(std::span<const RowGroup> groups,
               std::span<const CudaVariantWeights* const> variants, GroupedRows& out);
  void place_rows(std::span<const SequenceSpan> spans);

  StepStaging staging_;
  SlotTables& slots_;
  GroupedRows all_, logits_;
  std::vector<GeneratedRows> generated_;
  int32_t prompt_tiles_ = 0;
  size_t ids_ = 0, logit_rows_ = 0, places_ = 0, blocks_ = 0, tiles_ = 0;
};

}  // namespace deltad
