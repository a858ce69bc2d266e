#include "backend/cuda/slot_tables.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/check.h"

namespace deltad {

Status SlotTables::allocate(size_t weights, size_t apart_entries) {
  weights_ = weights;
  apart_entries_ = apart_entries;
  const auto make = [&](size_t entry_bytes, size_t entries) {
    return DeviceMemory::make(device_, device_.compute(), kCudaSlots * entries * entry_bytes,
                              "the tables of slots");
  };
  ASSIGN_OR_RETURN(signs_, make(sizeof(cuda::SignSlot), weights));
  ASSIGN_OR_RETURN(dense_, make(sizeof(cuda::DenseSlot), weights));
  ASSIGN_OR_RETURN(tables_, make(sizeof(void*), weights));
  ASSIGN_OR_RETURN(low_rank_, make(sizeof(cuda::LowRankSlot), weights));
  ASSIGN_OR_RETURN(apart_, make(sizeof(uint8_t), apart_entries));
  return {};
}

Status SlotTables::assign(std::span<const CudaVariantWeights* const> variants,
                          std::span<int32_t> out) {
  const auto none = std::count(variants.begin(), variants.end(), nullptr);  // the base's rows
  CHECK(std::ssize(variants) - none <= kCudaSlots, "more variants than slots");
  ++step_;
  // Those that have a slot keep it; so the others find one that is not needed.
  for (size_t i = 0; i < variants.size(); ++i) {
    out[i] = -1;
    if (variants[i] == nullptr) continue;
    const auto found = std::find(holds_.begin(), holds_.end(), variants[i]->serial());
    if (found == holds_.end()) continue;
    out[i] = static_cast<int32_t>(found - holds_.begin());
    used_[static_cast<size_t>(out[i])] = step_;
  }
  for (size_t i = 0; i < variants.size(); ++i) {
    if (variants[i] == nullptr || out[i] >= 0) continue;
    const auto slot = std::min_element(used_.begin(), used_.end()) - used_.begin();
    out[i] = static_cast<int32_t>(slot);
    holds_[static_cast<size_t>(slot)] = 0;
    RETURN_IF_ERROR(enter(*variants[i], out[i]));
    holds_[static_cast<size_t>(slot)] = variants[i]->serial();
    used_[static_cast<size_t>(slot)] = step_;
  }
  return {};
}

Status SlotTables::enter(const CudaVariantWeights& variant, int32_t slot) {
  RETURN_IF_ERROR(copy_entries(signs_, variant.sign_entries(), sizeof(cuda::SignSlot), slot));
  RETURN_IF_ERROR(copy_entries(dense_, variant.dense_entries(), sizeof(cuda::DenseSlot), slot));
  RETURN_IF_ERROR(copy_entries(tables_, variant.table_entries(), sizeof(void*), slot));
  RETURN_IF_ERROR(
      copy_entries(low_rank_, variant.low_rank_entries(), sizeof(cuda::LowRankSlot), slot));
  return CUDA_STATUS(device_,
                     cudaMemcpyAsync(apart_.at<void>(static_cast<size_t>(slot) * apart_entries_),
                                     variant.apart_entries(), apart_entries_,
                                     cudaMemcpyDeviceToDevice, device_.compute()),
                     fmt::format("entering a variant into slot {}", slot));
}

Status SlotTables::copy_entries(const DeviceMemory& table, const void* entries, size_t entry_bytes,
                                int32_t slot) {
  return CUDA_STATUS(device_,
                     cudaMemcpy2DAsync(table.at<void>(static_cast<size_t>(slot) * entry_bytes),
                                       kCudaSlots * entry_bytes, entries, entry_bytes, entry_bytes,
                                       weights_, cudaMemcpyDeviceToDevice, device_.compute()),
                     fmt::format("entering a variant into slot {}", slot));
}

}  // namespace deltad
