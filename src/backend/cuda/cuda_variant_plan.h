// Where everything of a variant lies on the device: one piece of memory, planned before any of it
// is taken. Made by loader threads.
#pragma once

#include <array>
#include <vector>

#include "backend/cuda/cuda_weights.h"
#include "backend/weight_rows.h"
#include "kernels/cuda/linear_decode.h"
#include "kernels/cuda/low_rank.h"

namespace deltad {

// One weight's. Offsets into the memory.
struct CudaVariantPlace {
  WeightContent content;
  std::array<size_t, kMaxLevels> signs, alpha;
  CudaMatrix dense;  // without storage
  size_t dense_at = 0;
  cuda::LowRankSlot low_rank{};  // without addresses; part p's factors at index parts_of[p]
  std::vector<int> parts_of;     // −1: no factors
  size_t scale = 0, a = 0, b = 0;
};

struct CudaVariantPlan {
  std::vector<CudaVariantPlace> weights;  // index: WeightId
  // What the kernels' tables of slots say of this variant, an entry a weight; copied from here into
  // the tables when it gets a slot.
  size_t sign_entries = 0, dense_entries = 0, table_entries = 0, low_rank_entries = 0,
         apart_entries = 0;
  size_t bytes = 0;
};

Result<CudaVariantPlan> plan_cuda_variant(const CudaWeights& base, const VariantContent& content);

}  // namespace deltad
