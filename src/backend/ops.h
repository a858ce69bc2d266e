// Ops: the operations that the transformer is made of, pure virtual so that a backend that lacks
// one does not compile. Called by the engine's thread, one after the other; each returns when its
// result is there (CPU) or ordered on the step's stream (CUDA). Arguments are checked by the caller
// (model/transformer); a wrong one is a CHECK.
//
// A step is: bind_slot for each of its variants, begin_step with its tables, operations that take
// these tables and no others, end_step. So a device copies the tables once and the result once.
// What a device cannot do (no memory, a failed launch) is told by end_step.
//
// Numerics: accumulation, residual stream, softmax, norms and logits in fp32; what a linear layer
// reads ("activation") in activation_type(). A row's result depends on that row alone: never on the
// number of rows, on the other rows, on how a prompt was cut into chunks or on the number of
// threads.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "backend/sampling.h"
#include "backend/weights.h"
#include "base/status.h"
#include "tensor/tensor_view.h"

namespace deltad {

class VariantWeights;

constexpr int32_t kBaseSlot = -1;
constexpr int32_t kElsewhere = -1;  // as a token id

// Contiguous rows of the batch that belong to one variant (slot ≥ 0) or to the base (kBaseSlot).
// The groups of a batch cover its rows in order, without gaps.
struct RowGroup {
  int32_t first_row, end_row;
  int32_t slot;
};

// Rows of one sequence in this step: positions first_position, first_position+1, …, all of its
// prompt or all generated. Where a backend has a path for each, this decides, never the number of
// rows: so what is computed again after a preemption has the bits that it had.
struct SequenceSpan {
  int32_t first_row, end_row;
  int32_t first_position;
  const int32_t*
      blocks;  // KV block of position p: blocks[p / block_tokens]; holds all up to the last row
  bool generated = false;
};

// The tables of a step. They live until its end_step, or until the next begin_step.
struct StepTables {
  std::span<const int32_t> ids;            // [rows]
  std::span<const RowGroup> groups;        // cover the rows
  std::span<const SequenceSpan> spans;     // cover the rows
  std::span<const int32_t> logit_rows;     // to be gathered
  std::span<const RowGroup> logit_groups;  // cover the gathered rows
};

enum class Epilogue {
  kStore,        // out[r, :] = y                      out fp32 [M, rows]
  kAddResidual,  // out[r, :] += y                     out fp32 [M, rows]
  kSiluGate,  // out[r, i] = silu(gate_i) · up_i    out activation [M, pad(I)]; interleaved weights
              // only
};

// Sizes of attention; constant for a model.
struct AttentionShape {
  int32_t heads, kv_heads, head_dim;
  int32_t q_offset, k_offset, v_offset;  // first column of each in a row of the fused qkv output
  float scale;                           // 1/√head_dim
};

// Paged KV cache: `blocks` blocks of `block_tokens` positions for each layer. A backend lays out
// the inside of a block as it likes; block_bytes says how large one is for one layer, k and v
// together.
struct KvView {
  void* data;  // layer l, block b at data + (l·blocks + b)·block_bytes
  int32_t blocks;
  int32_t block_tokens;  // 16
  int64_t block_bytes;
};

class Ops {
 public:
  virtual ~Ops() = default;

  virtual DType activation_type() const = 0;
  virtual int32_t max_slots() const = 0;
  // Rows of prompts and generated rows have paths of their own (SequenceSpan::generated), so one
  // token's keys and values have other bits as the one than as the other.
  virtual bool roles_differ() const { return false; }
  // Elements from one row of an activation (or of x) of `columns` columns to the next: columns plus
  // zero padding, which the caller allocates zeroed and ops keep zero.
  virtual int64_t row_stride(int64_t columns) const = 0;
  virtual int64_t kv_block_bytes(const AttentionShape& shape, int32_t block_tokens) const = 0;

  // kUnimplemented, with what was expected, if there is no kernel for such attention.
  virtual Status check_shape(const AttentionShape& shape) const = 0;

  // From now on slot means this variant (null: nothing). Between two steps only; a pointer, no
  // copy.
  virtual void bind_slot(int32_t slot, const VariantWeights* variant) = 0;
  // Every span that the step's operations get is one of these.
  virtual void begin_step(const StepTables& tables) = 0;
  // Waits for fp32 or activation `values` and gives them where the host may read and write them,
  // until the next step or download: on a CPU as they are. Within a step.
  virtual Result<TensorView> download(TensorView values) = 0;
  // Ends the step: the first thing that went wrong in it, else what download(result) gives. Without
  // a result (no data) it waits for nothing.
  virtual Result<TensorView> end_step(TensorView result) = 0;

  // A device that samples by itself: the most `top` that a request may have; −1: it does not.
  virtual int32_t most_sampled_top() const { return -1; }
  // end_step(logits), but what `rows` want of each row of logits comes back instead of them.
  // vocab[r]: columns of row r that count. meanwhile: null, or done here while the device works;
  // its error is the step's, which nobody waits for then.
  virtual Result<std::vector<SampleOutcome>> end_step_sampled(
      TensorView /*logits*/, std::span<const int64_t> /*vocab*/,
      std::span<const SampleRequest> /*rows*/, const std::function<Status()>& /*meanwhile*/) {
    return unimplemented("this device does not sample");
  }

  // out fp32 [M, H]: row r is the embedding of ids[r] (the variant's own, if it has one, plus what
  // its low-rank factors say), or zeros if ids[r] is kElsewhere: another rank has that token.
  virtual void embed(TensorView out, WeightId embedding, std::span<const int32_t> ids,
                     std::span<const RowGroup> groups) = 0;
  // out activation [M, H] = x / rms(x) · weight; x fp32 [M, H].
  virtual void rms_norm(TensorView out, TensorView x, WeightId norm, float eps,
                        std::span<const RowGroup> groups) = 0;
  // y[r] = W·x[r] + Σ_level α·sign·x[r] + s·B·(A·x[r]) of the row's variant (or its dense W), then
  // the epilogue.
  // x activation [M, d_in]. One pass over W for all rows. For a head with a dense replacement of
  // more rows than the base, out must have columns for the largest; columns beyond a row's own head
  // are left as they are.
  virtual void linear(TensorView out, TensorView x, WeightId weight,
                      std::span<const RowGroup> groups, Epilogue epilogue) = 0;
  // Rotates q and k of each row of qkv (fp32 [M, q|k|v]) by its position (half-split pairs: i with
  // i + head_dim/2) and appends k and v to the cache. cos_sin fp32 [positions, head_dim]: cosines,
  // then sines, of head_dim/2 angles.
  virtual void rope_append(TensorView qkv, const AttentionShape& shape, TensorView cos_sin,
                           const KvView& kv, int32_t layer,
                           std::span<const SequenceSpan> spans) = 0;
  // linear(qkv, x, weight, groups, kStore), then rope_append. k and v of qkv may be left as they
  // were: they are in the cache.
  virtual void linear_rope_append(TensorView qkv, TensorView x, WeightId weight,
                                  std::span<const RowGroup> groups, const AttentionShape& shape,
                                  TensorView cos_sin, const KvView& kv, int32_t layer,
                                  std::span<const SequenceSpan> spans) {
    linear(qkv, x, weight, groups, Epilogue::kStore);
    rope_append(qkv, shape, cos_sin, kv, layer, spans);
  }
  // out activation [M, heads·head_dim]: causal attention of each row over its sequence's cache, its
  // own position included.
  virtual void attention(TensorView out, TensorView qkv, const AttentionShape& shape,
                         const KvView& kv, int32_t layer, std::span<const SequenceSpan> spans) = 0;
  // out[i] = x[rows[i]]; fp32.
  virtual void gather_rows(TensorView out, TensorView x, std::span<const int32_t> rows) = 0;
  // Runs work(i) for 0 ≤ i < n on the kernel threads (sampling uses it). work must not call ops.
  virtual void parallel_for(int64_t n, void (*work)(void* context, int64_t i), void* context) = 0;
};

}  // namespace deltad
