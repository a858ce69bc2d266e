// CpuOps: the model's operations on this CPU. Owned by CpuBackend; called by the engine's thread,
// which is worker 0 of the team. Bodies: cpu_ops.cc (slots, gather, parallel_for), cpu_linear.cc,
// cpu_pointwise.cc (embed, rms_norm), cpu_attention.cc (rope_append, attention). The arithmetic is
// in kernels/cpu, chosen by Isa.
#pragma once

#include <memory>
#include <vector>

#include "backend/cpu/cpu_variant_weights.h"
#include "backend/ops.h"
#include "base/cpu_features.h"
#include "base/worker_team.h"

namespace deltad {

class CpuOps final : public Ops {
 public:
  CpuOps(Isa isa, WorkerTeam& team, const CpuWeights& weights);
  ~CpuOps() override;

  DType activation_type() const override;  // bf16 where vdpbf16ps is, else fp32
  int32_t max_slots() const override;
  int64_t row_stride(int64_t columns) const override;
  int64_t kv_block_bytes(const AttentionShape& shape, int32_t block_tokens) const override;
  Status check_shape(const AttentionShape&) const override { return {}; }
  void bind_slot(int32_t slot, const VariantWeights* variant) override;
  // Operations read their arguments where they are: nothing to do before or after them.
  void begin_step(const StepTables&) override {}
  Result<TensorView> download(TensorView values) override { return values; }
  Result<TensorView> end_step(TensorView result) override { return result; }
  void embed(TensorView out, WeightId embedding, std::span<const int32_t> ids,
             std::span<const RowGroup> groups) override;
  void rms_norm(TensorView out, TensorView x, WeightId norm, float eps,
                std::span<const RowGroup> groups) override;
  void linear(TensorView out, TensorView x, WeightId weight, std::span<const RowGroup> groups,
              Epilogue epilogue) override;
  void rope_append(TensorView qkv, const AttentionShape& shape, TensorView cos_sin,
                   const KvView& kv, int32_t layer, std::span<const SequenceSpan> spans) override;
  void attention(TensorView out, TensorView qkv, const AttentionShape& shape, const KvView& kv,
                 int32_t layer, std::span<const SequenceSpan> spans) override;
  void gather_rows(TensorView out, TensorView x, std::span<const int32_t> rows) override;
  void parallel_for(int64_t n, void (*work)(void* context, int64_t i), void* context) override;

 private:
  const CpuVariantWeights* variant(int32_t slot) const {
    return slot < 0 ? nullptr : slots_[static_cast<size_t>(slot)];
  }

  const Isa isa_;
  WorkerTeam& team_;
  const CpuWeights& weights_;
  std::vector<const CpuVariantWeights*> slots_;
  // Shared, so that each is complete only where it is made.
  struct LinearScratch;  // quantised activations and the like, grown as needed (cpu_linear.cc)
  std::shared_ptr<LinearScratch> linear_scratch_;
  struct AttentionScratch;  // per worker (cpu_attention.cc)
  std::shared_ptr<AttentionScratch> attention_scratch_;
};

}  // namespace deltad
