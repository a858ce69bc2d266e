// The forms that a pool gives its members: a lower rank, and the merge of two. Pure functions, any
// thread.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "delta/adapter_factors.h"
#include "merge/low_rank.h"

namespace deltad {

LowRankSet low_rank_of(const AdapterFactorSet& set);  // the scale goes into B
AdapterFactorSet factors_of_set(const LowRankSet& set);
int64_t largest_rank(const AdapterFactorSet& set);
bool is_bf16(const AdapterFactorSet& set);  // whether 16 bits hold each value as it is
double norm_of(const LowRankSet& set);      // ‖BA‖ over all modules

struct CutSet {
  LowRankSet set;
  bool changed = false;    // that some module has a lower rank now
  double kept_energy = 1;  // of ‖BA‖² over all modules
};
// Each module at the smallest rank that drops at most this share of its ‖BA‖².
Result<CutSet> cut_rank(const LowRankSet& set, double max_dropped_energy);

// What merging needs to know of a member that holds `held` adapters.
struct MergeHistory {
  int64_t held = 1;
  double lambda = 1;    // U = λ·Δ is the sum of the projected task vectors
  double norm_sum = 0;  // of the norms of the adapters' BA
};
struct MergedSet {
  LowRankSet set;
  MergeHistory history;
  double kept_energy = 1;  // of what is merged, before it was cut to the rank
};

// Modules have the rank that they have in `x`; those that x lacks keep y's.
// (n_x·x + n_y·y) / (n_x + n_y): the running average if y holds one adapter. λ is then the number
// of adapters, of which it is the sum.
Result<MergedSet> merge_average(const LowRankSet& x, const MergeHistory& x_history,
                                const LowRankSet& y, const MergeHistory& y_history);
// One step of OPCM with y as the next task vector: U = λ·x + P(y), cut to the rank; λ becomes ‖U‖
// over the mean norm of all adapters, so that ‖U/λ‖ is that mean.
Result<MergedSet> merge_opcm(const LowRankSet& x, const MergeHistory& x_history,
                             const LowRankSet& y, const MergeHistory& y_history, double share);

}  // namespace deltad
