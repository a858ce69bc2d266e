// SlotTables: what the kernels look a variant up in: for each weight an entry a slot. Kernels (and
// captured launches) hold the tables' addresses, never a variant's. A variant keeps its slot from
// step to step; one that comes anew takes the slot of one that the step does not use, and its
// entries are copied there on the stream of steps. So nothing here waits, and a variant that was
// evicted leaves entries that no row refers to. Owned by CudaOps; the engine's thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "backend/cuda/cuda_variant_weights.h"
#include "kernels/cuda/row_groups.h"

namespace deltad {

// A group of the base's rows, and one for each slot.
constexpr int32_t kCudaSlots = cuda::kMaxRowGroups - 1;

class SlotTables {
 public:
  explicit SlotTables(CudaDevice& device) : device_(device) {}

  // Once, for so many weights, with so many entries of `apart` in all.
  Status allocate(size_t weights, size_t apart_entries);
  // Gives each of a step's variants a slot; out[i] is that of variants[i] (null: −1). Once a
  // step.
  Status assign(std::span<const CudaVariantWeights* const> variants, std::span<int32_t> out);

  // [kCudaSlots], of one weight.
  const cuda::SignSlot* signs(WeightId weight) const { return at<cuda::SignSlot>(signs_, weight); }
  const cuda::DenseSlot* dense(WeightId weight) const {
    return at<cuda::DenseSlot>(dense_, weight);
  }
  // The same as an address alone, of embeddings and norms.
  const void* const* tables(WeightId weight) const {
    return at<const void* const>(tables_, weight);
  }
  const cuda::LowRankSlot* low_rank(WeightId weight) const {
    return at<cuda::LowRankSlot>(low_rank_, weight);
  }
  // [kCudaSlots, apart_stride()]: LinearPrefillParams::apart of all weights
  // (CudaWeights::apart_at).
  const uint8_t* apart() const { return apart_.as<uint8_t>(); }
  int32_t apart_stride() const { return static_cast<int32_t>(apart_entries_); }
  size_t bytes() const {
    return signs_.bytes() + dense_.bytes() + tables_.bytes() + low_rank_.bytes() + apart_.bytes();
  }

 private:
  template <typename T>
  static T* at(const DeviceMemory& table, WeightId weight) {
    return static_cast<T*>(table.data()) + int64_t{weight} * kCudaSlots;
  }
  Status enter(const CudaVariantWeights& variant, int32_t slot);
  Status copy_entries(const DeviceMemory& table, const void* entries, size_t entry_bytes,
                      int32_t slot);

  CudaDevice& device_;
  size_t weights_ = 0, apart_entries_ = 0;
  DeviceMemory signs_, dense_, tables_, low_rank_, apart_;
  std::array<uint64_t, kCudaSlots> holds_{};  // the variant's serial; 0: nothing
  std::array<uint64_t, kCudaSlots> used_{};   // number of the last step that used it
  uint64_t step_ = 0;
};

}  // namespace deltad
