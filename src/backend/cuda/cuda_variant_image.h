// CudaVariantImage: a variant as it lay on the device, in the host's pinned memory, and what it
// takes to make it again elsewhere on the device: the entries of the kernels' tables hold
// addresses, all else is copied as it is. Made by CudaVariantWeights::copy_to_host, then constant;
// shared by reference. The base that it was made beside outlives it.
#pragma once

#include <cstddef>
#include <vector>

#include "backend/cuda/cuda_variant_plan.h"
#include "backend/cuda/host_pool.h"

namespace deltad {

struct CudaVariantImage final : VariantImage {
  size_t bytes() const override { return memory.bytes(); }

  HostPool::Pieces memory;
  CudaVariantPlan plan;
  // As they were, with addresses on the device from `at` on.
  std::byte* at = nullptr;
  std::vector<CudaMatrix> dense;             // index: WeightId
  std::vector<cuda::LowRankSlot> low_ranks;  // index: WeightId
};

}  // namespace deltad
