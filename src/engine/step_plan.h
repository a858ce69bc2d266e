// StepPlan: what one step will do, as the scheduler decided. Plain data; made by plan_step, carried
// out by the engine.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/sequence.h"

namespace deltad {

// Rows of one sequence: its tokens [first_position, first_position + rows).
struct PlannedRows {
  Sequence* sequence;
  int32_t first_position;
  int32_t rows;
  int32_t slot;  // index into StepPlan::slots; −1: the base
  // The rows reach the sequence's last token.
  bool last() const { return first_position + rows == sequence->size(); }
};

// A waiting sequence that gets memory: blocks from the prefix cache, then `fresh` new ones.
struct AdmittedSequence {
  Sequence* sequence;
  std::vector<int32_t> cached;
  int32_t fresh;
  bool took_place;  // others were preempted for it
};

// Blocks of a running prompt that somebody else has computed meanwhile: they take the place of its
// own blocks from `first_block` on.
struct Adoption {
  Sequence* sequence;
  int32_t first_block;
  std::vector<int32_t> cached;
};

struct StepPlan {
  std::vector<Sequence*> preempted;
  std::vector<AdmittedSequence> admitted;
  std::vector<Adoption> adopted;
  std::vector<Sequence*> grown;       // generating ones that get one more block
  std::vector<PlannedRows> rows;      // sorted by slot, the base first
  std::vector<const Variant*> slots;  // the distinct variants of the rows
  int32_t generating_rows = 0, prompt_rows = 0;

  bool empty() const { return rows.empty() && preempted.empty() && admitted.empty(); }
};

}  // namespace deltad
