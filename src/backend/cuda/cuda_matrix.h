// CudaMatrix: one weight as it lies on the device (kernels/cuda/linear_tiles.h), the base's or what
// a variant has instead. Its memory belongs to an arena. Written by loader threads through the
// LoadRing, then constant.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/cuda/cuda_kernels.h"
#include "backend/cuda/host_tier.h"
#include "backend/cuda/load_ring.h"
#include "backend/weights.h"
#include "kernels/cuda/linear_prefill_range.h"
#include "kernels/cuda/linear_tiles.h"

namespace deltad {

constexpr int64_t kMostCudaColumns = 32768;  // of the kernels: sums of signs fit 32 bits

// How many weights of each 16 outputs have which exponent: 256 counts, most of them 0, so what is
// kept of them is less.
class CudaExponents {
 public:
  void add(const cuda::ExponentCounts& counts);  // of the next 16 outputs
  size_t size() const { return ends_.size(); }
  cuda::ExponentCounts operator[](size_t tile) const;

 private:
  static constexpr int kCountBits = 24;  // 16 outputs have 2^19 weights at most
  std::vector<uint32_t> counts_;         // the exponent's bits above the count
  std::vector<uint32_t> ends_;           // in counts_, of each 16 outputs
};

struct CudaMatrix {
  void* storage = nullptr;  // bf16: base tiles, or [rows] of a vector
  int64_t rows = 0;         // unpadded; of an embedding or head the vocabulary
  int64_t columns = 0;
  // Of a matrix, once it is filled: measure_ranges.
  cuda::WeightRange range;
  std::shared_ptr<const CudaExponents> exponents;

  int32_t outputs() const { return cuda::padded_outputs(static_cast<int32_t>(rows)); }
};

// Hands out places in memory that is taken in one piece later, one after the other.
class CudaPlan {
 public:
  static constexpr size_t kAlignment = 256;
  size_t add(size_t bytes) {
    const size_t at = end_;
    end_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return at;
  }
  size_t bytes() const { return end_; }

 private:
  size_t end_ = 0;
};

size_t storage_bytes(const CudaMatrix& matrix, WeightKind kind);
// Where a part's rows from `first` on (a multiple of 16) go.
cuda::TileRows tiles_from(const WeightSpec& spec, int part, int64_t first);

// How the loaders write to the device, and where to variants leave it.
struct CudaLoading {
  CudaDevice& device;
  const CudaKernels& kernels;
  LoadRing& ring;
  HostTier& host;
};
// values bf16 [count, d_in]: rows [first, first+count) of a part, which check_rows_of allows.
Status put_values(const CudaLoading& loading, const CudaMatrix& to, const WeightSpec& spec,
                  int part, int64_t first, int64_t count, const uint16_t* values);

// Counts the exponents of filled matrices on the device, for the kernels of prompts; waits for the
// loads that were ordered before.
Status measure_ranges(const CudaLoading& loading, std::span<CudaMatrix* const> matrices);

}  // namespace deltad
