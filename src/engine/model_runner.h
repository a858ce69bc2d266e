// ModelRunner: all that the engine needs of a model and its backend. The real one is
// TransformerRunner; tests of the engine have one without weights. Called by the engine's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "model/transformer.h"

namespace deltad {

class ModelRunner {
 public:
  virtual ~ModelRunner() = default;
  // Computes the batch's rows over the cache. slots[s] is the variant of groups with slot s.
  virtual Result<Logits> forward(const Batch& batch, const KvView& kv,
                                 std::span<const VariantWeights* const> slots) = 0;
  // A generated row has other bits than the same row of a prompt.
  virtual bool roles_differ() const { return false; }
  // Where the device samples, the most `top` that a request may have; −1: the host samples.
  virtual int32_t most_sampled_top() const { return -1; }
  // forward, with what each row of logits is for. meanwhile: done while the device works.
  virtual Result<std::vector<SampleOutcome>> forward_sampled(
      const Batch& /*batch*/, const KvView& /*kv*/,
      std::span<const VariantWeights* const> /*slots*/, std::span<const SampleRequest> /*wanted*/,
      const std::function<void()>& /*meanwhile*/) {
    return unimplemented("this model's logits are sampled on the host");
  }
  virtual int32_t max_slots() const = 0;
  // Where preempted sequences' blocks may lie, and how many; null: they are computed again.
  virtual KvSwap* kv_swap() { return nullptr; }
  virtual int32_t host_blocks() const { return 0; }
  virtual size_t workspace_bytes() const { return 0; }  // memory beside weights and KV
  // Not ok: it has failed, for good, and so will every step. Any thread.
  virtual Status health() const { return {}; }
  // Runs work(context, i) for 0 ≤ i < n on the kernel threads.
  virtual void parallel_for(int64_t n, void (*work)(void* context, int64_t i), void* context) = 0;
};

}  // namespace deltad
