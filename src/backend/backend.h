// Backend: where weights live and steps run. One implementation per kind of device (backend/cpu;
// CUDA later). Owned by main. Loading (put_*, new_variant) may be called by loader threads; ops()
// only by the engine's thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/ops.h"
#include "backend/weights.h"
#include "base/status.h"
#include "tensor/buffer.h"

namespace deltad {

// What a variant does to each weight, in the backend's own layout: nothing, sign levels, or a dense
// replacement. Filled by one loader (several threads may put disjoint rows), then finished and
// immutable; shared by reference.
class VariantWeights {
 public:
  virtual ~VariantWeights() = default;

  // Level `level` (0-based, at most kMaxLevels) of part `part`: rows [first, first+count) of the
  // file's sign bytes, bits [count, ⌈d_in/8⌉] with row_bytes bytes a row (bit i of byte j is column
  // 8j+i, 1 means +).
  virtual Status put_sign_rows(WeightId weight, int part, int level, int64_t first, int64_t count,
                               const uint8_t* bits) = 0;
  // α of a level, one a row of the part: alpha [rows of the part].
  virtual Status put_alpha(WeightId weight, int part, int level, const float* alpha) = 0;
  // Makes room for a dense replacement with `rows` rows in this part (an embedding or head may have
  // more than the base). Parts of a fused weight that are not replaced keep the base's values.
  virtual Status begin_dense(WeightId weight, int part, int64_t rows) = 0;
  // values bf16 [count, d_in], rows [first, first+count) of the part; begin_dense came before.
  virtual Status put_dense_rows(WeightId weight, int part, int64_t first, int64_t count,
                                const uint16_t* values) = 0;
  // The weight `to` uses what this variant has for `from` (a tied head follows replaced
  // embeddings), without a copy.
  virtual void alias_dense(WeightId to, WeightId from) = 0;
  // Ends filling.
  virtual Status finish() = 0;

  virtual size_t bytes() const = 0;  // resident
  virtual int64_t dense_rows(
      WeightId weight) const = 0;  // rows of a dense replacement (unpadded), 0 if none
};

constexpr int kMaxLevels = 4;

// What a variant does to one weight, as far as its size depends on it.
struct WeightChange {
  WeightId weight = -1;
  int levels = 0;          // of signs, over all parts
  int64_t dense_rows = 0;  // of a dense replacement's last part; 0: none
};

class Backend {
 public:
  virtual ~Backend() = default;

  // Reserves memory for the base weights. Once, before put_rows.
  virtual Status declare_weights(const std::vector<WeightSpec>& specs) = 0;
  // values bf16 [count, d_in]: rows [first, first+count) of a part, in the file's row order. first
  // is a multiple of 16 for matrices. Several threads may put disjoint ranges of rows.
  virtual Status put_rows(WeightId weight, int part, int64_t first, int64_t count,
                          const uint16_t* values) = 0;
  virtual std::unique_ptr<VariantWeights> new_variant() = 0;
  // What bytes() of a variant with these changes (one a weight) will be, before it is loaded.
  virtual size_t variant_bytes(const std::vector<WeightChange>& changes) const = 0;

  virtual Result<Buffer> allocate(size_t bytes) = 0;  // device memory, zero-filled
  virtual Ops& ops() = 0;
  virtual size_t weight_bytes() const = 0;      // of the base, resident
  virtual std::string description() const = 0;  // "CPU, avx512_bf16, 2 threads"
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
