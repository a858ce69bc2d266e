// Sequence: one request on its way through the engine: its tokens, how far they are computed, and
// the KV blocks that hold them. Owned by the engine; its thread only.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/request.h"
#include "engine/token_counts.h"
#include "kv/kv_cache.h"

namespace deltad {

struct Flow;

struct Sequence {
  Sequence(RequestHandle handle, Request request, int32_t max_context);

  const Variant* variant() const { return request.variant.get(); }
  int32_t size() const { return static_cast<int32_t>(tokens.size()); }
  int32_t outputs() const { return size() - prompt_tokens; }
  int32_t uncomputed() const { return size() - computed; }
  // One row a step; everything else is prompt (also what is computed again after a preemption).
  bool generating() const { return outputs() > 0 && uncomputed() == 1; }
  // Logits of the prompt's rows are still wanted, so none of them may come from the prefix cache.
  bool wants_prompt_logprobs() const {
    return request.prompt_logprobs >= 0 &&
           static_cast<int32_t>(prompt_logprobs.size()) < prompt_tokens - 1;
  }
  // Adds the keys of the blocks that tokens fill. roles_differ: of the runner.
  void extend_keys(int32_t block_tokens, bool roles_differ);

  const RequestHandle handle;
  Request request;
  const int32_t prompt_tokens;
  const int32_t length_limit;   // tokens at which it ends: by max_tokens or by the context
  std::vector<int32_t> tokens;  // prompt, then output
  std::vector<BlockKey> keys;   // [0] the root, [i + 1] of full block i

  bool running = false;   // admitted, and not preempted since
  int32_t computed = 0;   // leading tokens whose keys and values lie in blocks
  int32_t published = 0;  // leading blocks offered to the prefix index
  std::vector<int32_t> blocks;
  // While it waits after a preemption: blocks of host memory that hold its first tokens' keys and
  // values, and how many tokens.
  std::vector<int32_t> host_blocks;
  int32_t swapped = 0;
  uint64_t admission = 0;   // order of admissions
  uint64_t turn = 0;        // order of the last steps with a row of it; the least waits longest
  bool preempted = false;   // ever
  bool took_place = false;  // ever: others were preempted for it

  Flow* flow = nullptr;    // whose tokens it takes (fair_queue.h)
  int32_t charged = 0;     // leading tokens that its flow has paid for
  bool left_rows = false;  // the last step did not take all its rows
  TimePoint served{};      // the last step with a row of it, or its admission

  std::optional<TokenCounts> counts;
  std::vector<TokenLogprob> prompt_logprobs;  // of prompt[1..], as far as known
  std::vector<std::vector<TokenLogprob>> prompt_top;
  bool prompt_logprobs_delivered = false;
  int32_t cached_tokens = 0;  // prompt tokens that were not computed
  TimePoint admitted{}, first_token{};
};

// Who goes first: the lower priority number, then who came first. A preempted sequence keeps its
// handle, so it stands before all that came after it.
struct Sooner {
  bool operator()(const Sequence* a, const Sequence* b) const {
    if (a->request.priority != b->request.priority)
      return a->request.priority < b->request.priority;
    return a->handle < b->handle;
  }
};

}  // namespace deltad
