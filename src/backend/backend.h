// Backend: where weights live and steps run. One implementation per kind of device (backend/cpu,
// backend/cuda). Owned by main. Loading (put_*, new_variant, upload) may be called by loader
// threads; ops() only by the engine's thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/kv_swap.h"
#include "backend/ops.h"
#include "backend/weights.h"
#include "base/status.h"
#include "tensor/buffer.h"

namespace deltad {

// A variant that has left the device, as it lay there, in the host's memory. Constant; shared by
// reference.
class VariantImage {
 public:
  virtual ~VariantImage() = default;
  virtual size_t bytes() const = 0;  // as many as the variant takes on the device
};

// What a variant does to each weight, in the backend's own layout: nothing, sign levels, low-rank
// factors, or a dense replacement. Its memory is made for a VariantContent, filled by one loader
// (several threads may put disjoint rows), then finished and immutable; shared by reference.
class VariantWeights {
 public:
  virtual ~VariantWeights() = default;

  // Level `level` (0-based) of part `part`: rows [first, first+count) of the file's sign bytes,
  // bits [count, ⌈d_in/8⌉] (bit i of byte j is column 8j+i, 1 means +). first is a multiple of 16.
  virtual Status put_sign_rows(WeightId weight, int part, int level, int64_t first, int64_t count,
                               const uint8_t* bits) = 0;
  // α of a level, one a row of the part: alpha [rows of the part].
  virtual Status put_alpha(WeightId weight, int part, int level, const float* alpha) = 0;
  // values bf16 [count, d_in], rows [first, first+count) of a replaced part; first is a multiple of
  // 16 for matrices. Parts of a fused weight that are not replaced keep the base's values.
  virtual Status put_dense_rows(WeightId weight, int part, int64_t first, int64_t count,
                                const uint16_t* values) = 0;
  // Δ = scale·B·A of a part: a [rank, d_in], b [rows of the part, rank]; kept as bf16. Rank as in
  // the content.
  virtual Status put_low_rank(WeightId weight, int part, float scale, const float* a,
                              const float* b) = 0;
  // The weight `to` uses the dense values and the low-rank factors that this variant has for `from`
  // (a tied head follows the embeddings), without a copy.
  virtual void alias_weight(WeightId to, WeightId from) = 0;
  // Takes up its memory before it is filled, a huge page at a time, with `after_each` after each;
  // its error ends this. For a load that is to disturb nobody; otherwise memory is taken up as it
  // is filled. Nothing to do where memory is there from the start.
  virtual Status populate(const std::function<Status()>& after_each) {
    (void)after_each;
    return {};
  }
  // Ends filling. From here on all of its memory is resident: no use waits for the system.
  // cancelled: polled if there is one; kCancelled.
  virtual Status finish(const std::atomic<bool>* cancelled = nullptr) = 0;

  // A copy of a finished variant in what WeightStore::reserve_host took, made while others use it.
  virtual Result<std::unique_ptr<VariantImage>> copy_to_host() const {
    return unimplemented("variants lie in the host's memory here");
  }

  virtual size_t bytes() const = 0;  // that it takes, whole
  virtual int64_t dense_rows(
      WeightId weight) const = 0;  // rows of a dense replacement (unpadded), 0 if none
};

constexpr int kMaxLevels = 4;
constexpr int64_t kMaxLowRank = 1024;  // of the factors of one tensor

// Where a model's weights and its variants' lie: a backend, or several that have a share each
// (parallel/parallel_backend). All that loaders know of either.
class WeightStore {
 public:
  virtual ~WeightStore() = default;

  // Reserves memory for the base weights. Once, before put_rows.
  virtual Status declare_weights(const std::vector<WeightSpec>& specs) = 0;
  // values bf16 [count, d_in]: rows [first, first+count) of a part, in the file's row order. first
  // is a multiple of 16 for matrices. Several threads may put disjoint ranges of rows.
  virtual Status put_rows(WeightId weight, int part, int64_t first, int64_t count,
                          const uint16_t* values) = 0;
  // After the last put_rows: returns when all of them are in their places.
  virtual Status finish_weights() = 0;
  // Memory for a variant's values. kInvalidArgument if the base has no such place.
  virtual Result<std::unique_ptr<VariantWeights>> new_variant(const VariantContent& content) = 0;
  // What such a variant takes (its bytes()), before it is made.
  virtual Result<size_t> variant_bytes(const VariantContent& content) const = 0;

  // Takes host memory for copies of variants that leave the device: `bytes` in all or a little
  // less, which it returns; once. 0 where variants lie in the host's memory anyway.
  virtual Result<size_t> reserve_host(size_t /*bytes*/) { return size_t{0}; }
  // The variant that was copied, on the device again: copies alone, nothing is read or computed.
  // cancelled: polled; kCancelled.
  virtual Result<std::unique_ptr<VariantWeights>> restore(const VariantImage& /*image*/,
                                                          const std::atomic<bool>& /*cancelled*/) {
    return unimplemented("variants lie in the host's memory here");
  }

  // What it may still take in all; nullopt: as much as this machine's memory allows.
  virtual std::optional<int64_t> device_free_bytes() const = 0;
  virtual size_t weight_bytes() const = 0;      // of the base, resident
  virtual std::string description() const = 0;  // "CPU, avx512_bf16, 2 threads"
  // Who has a share. Each reads a part of every file, of equal size and in one piece.
  virtual int ranks() const { return 1; }
};

class Backend : public WeightStore {
 public:
  virtual Result<Buffer> allocate(size_t bytes) = 0;  // device memory, zero-filled
  // Copies from the host into allocated memory; `from` may be reused when it returns. Not while a
  // step uses that memory.
  virtual Status upload(void* to, const void* from, size_t bytes) = 0;
  // Pinned host memory for so many blocks of a cache in allocated memory, which outlives it; null
  // where the cache lies in the host's memory anyway.
  virtual Result<std::unique_ptr<KvSwap>> new_kv_swap(const KvView& /*kv*/, int64_t /*layers*/,
                                                      int32_t /*host_blocks*/) {
    return std::unique_ptr<KvSwap>();
  }
  // Not ok: the device has failed, for good, and so will every step.
  virtual Status health() const = 0;
  virtual Ops& ops() = 0;
  // On a device, beside weights, variants and what allocate() gave: staging, tables, scratch.
  virtual size_t workspace_bytes() const { return 0; }
};

struct CpuBackendOptions {
  int threads = 0;  // 0: one a core of the affinity mask
  bool pin = true;
  std::string isa;  // "": the best there is; else scalar, avx2, avx512, avx512_bf16 (also by
                    // $DELTAD_CPU_ISA)
};
// kInvalidArgument if the ISA is unknown or this CPU lacks it.
Result<std::unique_ptr<Backend>> make_cpu_backend(const CpuBackendOptions& options);

}  // namespace deltad
