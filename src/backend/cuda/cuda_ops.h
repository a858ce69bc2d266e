// CudaOps: the model's operations on a GPU: each orders its kernels on the stream of steps and
// returns. Owned by CudaBackend; called by the engine's thread. Bodies: cuda_ops.cc (a step's begin
// and end, slots), cuda_linear.cc, cuda_pointwise.cc (embed, rms_norm, gather), cuda_attention.cc,
// cuda_sampling.cc.
// The arithmetic is in kernels/cuda.
//
// What fails in a step is kept and told by end_step; the step's operations after it do nothing.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <vector>

#include "backend/cuda/step_program.h"
#include "backend/cuda/step_rows.h"
#include "base/worker_team.h"
#include "kernels/cuda/linear_decode.h"
#include "kernels/cuda/sampler.h"
#include "kernels/cuda/sum_parts.h"

namespace deltad {

class CudaOps final : public Ops {
 public:
  // host_threads: of parallel_for.
  CudaOps(CudaDevice& device, const CudaKernels& kernels, const CudaWeights& weights,
          int host_threads);

  CudaDevice& device() { return device_; }
  // For ranks, whose steps are one: the step's launches, what failed in it so far, and the end of
  // what was gathered of it.
  StepProgram& program() { return program_; }
  const Status& failure() const { return failure_; }
  Status end_list();
  // For communicators that order sums as they come: launches what was gathered.
  Status flush();
  Status sum_parts(const cuda::SumPartsParams& p);
  // Null: there are no others.
  void work_with(StepProgram::Together* others) {
    program_.work_with(others);
    has_others(others != nullptr);
  }
  // Whether steps wait for other GPUs, which may hang.
  void has_others(bool has) { has_others_ = has; }
  // Once, after the weights are declared.
  Status allocate_slots();
  int64_t replayed_steps() const { return program_.replays(); }
  // Memory on the device that is neither weights nor handed out. Any thread.
  size_t device_bytes() const { return device_bytes_.load(std::memory_order_relaxed); }

  DType activation_type() const override { return DType::kBF16; }
  int32_t max_slots() const override { return kCudaSlots; }
  bool roles_differ() const override { return true; }
  int64_t row_stride(int64_t columns) const override { return (columns + 15) / 16 * 16; }
  int64_t kv_block_bytes(const AttentionShape& shape, int32_t block_tokens) const override;
  Status check_shape(const AttentionShape& shape) const override;
  void bind_slot(int32_t slot, const VariantWeights* variant) override;
  void begin_step(const StepTables& tables) override;
  Result<TensorView> download(TensorView values) override;
  Result<TensorView> end_step(TensorView result) override;
  int32_t most_sampled_top() const override;
  Result<std::vector<SampleOutcome>> end_step_sampled(
      TensorView logits, std::span<const int64_t> vocab, std::span<const SampleRequest> rows,
      const std::function<Status()>& meanwhile) override;
  void embed(TensorView out, WeightId embedding, std::span<const int32_t> ids,
             std::span<const RowGroup> groups) override;
  void rms_norm(TensorView out, TensorView x, WeightId norm, float eps,
                std::span<const RowGroup> groups) override;
  void linear(TensorView out, TensorView x, WeightId weight, std::span<const RowGroup> groups,
              Epilogue epilogue) override;
  void rope_append(TensorView qkv, const AttentionShape& shape, TensorView cos_sin,
                   const KvView& kv, int32_t layer, std::span<const SequenceSpan> spans) override;
  void linear_rope_append(TensorView qkv, TensorView x, WeightId weight,
                          std::span<const RowGroup> groups, const AttentionShape& shape,
                          TensorView cos_sin, const KvView& kv, int32_t layer,
                          std::span<const SequenceSpan> spans) override;
  void attention(TensorView out, TensorView qkv, const AttentionShape& shape, const KvView& kv,
                 int32_t layer, std::span<const SequenceSpan> spans) override;
  void gather_rows(TensorView out, TensorView x, std::span<const int32_t> rows) override;
  void parallel_for(int64_t n, void (*work)(void* context, int64_t i), void* context) override;

 private:
  // Memory that kernels use between them, as large as the largest batch needed so far.
  struct Scratch {
    DeviceMemory planes, plane_scale, plane_sum;  // of linear: activations as bit planes
    DeviceMemory base_parts, sign_parts;          // sums of splits
    DeviceMemory arrivals;                        // all zero between kernels
    DeviceMemory packed, packed_scale;            // of linear: activations of prompts
    DeviceMemory low_rank, gate;                  // t; gate and up before the gate
    DeviceMemory attention_parts, attention_arrivals;
    DeviceMemory sample_unchanged, sample_results, sample_tops;
  };
  struct Linear;  // one call of linear (cuda_linear.cc)
  void linear_piece(TensorView out, TensorView x, WeightId weight, const GroupedRows& rows,
                    cuda::LinearEpilogue epilogue, const cuda::RopeAppendParams* rope = nullptr);

  // Whether the step still works; if not, operations do nothing.
  bool working() const { return failure_.ok(); }
  // Keeps the step's first failure.
  void note(const Status& status) {
    if (failure_.ok() && !status.ok()) failure_ = status;
  }
  template <class Params>
  void launch(const char* kernel, const cuda::Launch& shape, const Params& params) {
    if (working()) note(program_.launch(kernel, shape, params));
  }
  void grow(DeviceMemory& memory, int64_t bytes, const char* purpose) {
    if (!working() || static_cast<size_t>(bytes) <= memory.bytes()) return;
    // What is gathered uses the memory that is given back here.
    if (has_others_ && program_.gathers())
      outgrown_.push_back(std::move(memory));
    else
      note(program_.flush());
    if (working())
      note(memory.grow(device_, device_.compute(), static_cast<size_t>(bytes), purpose));
  }
  // Ends a step that has failed.
  Status failed();
  Result<TensorView> fetch(TensorView values);
  struct OnDevice {
    const void* data;
    size_t bytes;
  };
  // Waits for the step, after `meanwhile`; both lie one after the other in downloaded_.
  Status fetch_bytes(const std::array<OnDevice, 2>& parts,
                     const std::function<Status()>& meanwhile = nullptr);
  void order_sampler(TensorView logits, std::span<const cuda::SampleRow> rows,
                     std::span<const cuda::LogitChange> changes);
  // Of `rows` rows from `first` on.
  cuda::RopeAppendParams rope_params(TensorView qkv, const AttentionShape& shape,
                                     TensorView cos_sin, const KvView& kv, int32_t layer,
                                     int32_t first, int32_t rows) const;
  void count_bytes();

  CudaDevice& device_;
  const CudaKernels& kernels_;
  const CudaWeights& weights_;
  WorkerTeam team_;
  std::vector<const CudaVariantWeights*> bound_;
  SlotTables slots_;
  StepRows rows_;
  StepTables tables_;
  StepProgram program_;
  StepStaging sampling_;  // what is wanted of the logits
  Scratch scratch_;
  PinnedMemory downloaded_;
  std::vector<std::byte> in_order_;  // downloaded rows in the batch's order
  Status failure_;
  bool has_others_ = false;  // whose GPUs may hang: then what waits for this one would never end
  std::vector<DeviceMemory> outgrown_;  // in this step
  std::vector<PinnedMemory> outgrown_pinned_;
  std::atomic<size_t> device_bytes_{0};
};

}  // namespace deltad
