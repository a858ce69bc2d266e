// What a plan of EngineCore says of memory, made true before its rows are computed: blocks of those
// that are preempted, grow or are admitted, and copies to host memory and back.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "engine/engine_core.h"

namespace deltad {

// The plan has counted the blocks, so none can lack here. What is reused is held before anything is
// taken: taking may reclaim blocks that nobody holds.
void EngineCore::reserve(StepPlan& plan) {
  preempt(plan.preempted);
  for (const AdmittedSequence& a : plan.admitted)
    for (const int32_t block : a.cached) kv_.retain(block);
  for (const Adoption& a : plan.adopted) {
    for (const int32_t block : a.cached) kv_.retain(block);
    Sequence* s = a.sequence;
    const auto own = s->blocks.begin() + a.first_block;
    kv_.release(std::span(s->blocks).subspan(static_cast<size_t>(a.first_block), a.cached.size()));
    std::copy(a.cached.begin(), a.cached.end(), own);
    const auto tokens = static_cast<int32_t>(a.cached.size()) * kv_.block_tokens();
    s->computed += tokens;
    s->published = a.first_block + static_cast<int32_t>(a.cached.size());
    if (!s->preempted) s->cached_tokens += tokens;
    stats_.cached_tokens += static_cast<uint64_t>(tokens);
    stats_.prefix_hits += static_cast<uint64_t>(tokens);
  }
  for (Sequence* s : plan.grown) grow(s, 1);
  const std::vector<Sequence*> lost = admit(plan.admitted);
  settle(plan, state_);
  for (Sequence* s : lost) leave_out(plan, s);
}

// The sequence has no row in this step; it is computed again from the next one on.
void EngineCore::leave_out(StepPlan& plan, Sequence* s) {
  s->left_rows = true;
  const auto rows = std::find_if(plan.rows.begin(), plan.rows.end(),
                                 [s](const PlannedRows& r) { return r.sequence == s; });
  if (rows == plan.rows.end()) return;
  plan.prompt_rows -= rows->rows;
  plan.rows.erase(rows);
}

void EngineCore::grow(Sequence* s, int32_t count) {
  for (int32_t i = 0; i < count; ++i) {
    const int32_t block = kv_.take();
    CHECK(block >= 0, "the plan promised a block that is not there");
    s->blocks.push_back(block);
  }
}

// What finds room in host memory comes back from there; the rest is computed again.
void EngineCore::preempt(const std::vector<Sequence*>& preempted) {
  std::vector<KvBlockCopy> copies;
  for (Sequence* s : preempted) {
    const std::vector<KvBlockCopy> own = to_host(s);
    copies.insert(copies.end(), own.begin(), own.end());
    free_blocks(s);
    leave_running(s);
    s->preempted = true;
    state_.waiting.insert(s, state_.now);
    ++stats_.preemptions;
  }
  if (copies.empty()) return;
  const Status status = runner_.kv_swap()->to_host(copies);
  if (!status.ok()) {
    log_warning("preempted sequences will be computed again: {}", status.message());
    for (Sequence* s : preempted) free_host_blocks(s);
  }
  for (const Sequence* s : preempted) stats_.swapped_out += s->swapped > 0;
}

std::vector<KvBlockCopy> EngineCore::to_host(Sequence* s) {
  std::vector<KvBlockCopy> copies;
  const int32_t blocks = kv_.blocks_for(s->computed);
  if (blocks > host_.free()) return copies;
  for (int32_t i = 0; i < blocks; ++i) {
    s->host_blocks.push_back(host_.take_free());
    copies.push_back({s->blocks[static_cast<size_t>(i)], s->host_blocks.back()});
  }
  s->swapped = s->computed;
  return copies;
}

void EngineCore::free_host_blocks(Sequence* s) {
  for (const int32_t block : s->host_blocks) host_.release(block, false);
  s->host_blocks.clear();
  s->swapped = 0;
}

// Blocks that the prefix cache still has need no copy. Each sequence's others are copied by a call
// of their own: where that fails, the sequence is computed again, and no other one is. Those are
// returned.
std::vector<Sequence*> EngineCore::admit(const std::vector<AdmittedSequence>& admitted) {
  std::vector<std::pair<Sequence*, std::vector<KvBlockCopy>>> swapped_in;
  for (const AdmittedSequence& a : admitted) {
    Sequence* s = a.sequence;
    s->blocks = a.cached;
    grow(s, a.fresh);
    s->published = static_cast<int32_t>(a.cached.size());
    const int32_t cached = s->published * kv_.block_tokens();
    s->computed = std::max(cached, s->swapped);
    if (s->swapped > cached) {
      auto& copies = swapped_in.emplace_back(s, std::vector<KvBlockCopy>()).second;
      for (auto i = static_cast<size_t>(s->published); i < s->host_blocks.size(); ++i)
        copies.push_back({s->blocks[i], s->host_blocks[i]});
    }
    // Later copies into them come after these.
    free_host_blocks(s);
    s->running = true;
    s->took_place |= a.took_place;
    s->admission = ++admissions_;
    s->turn = ++state_.turns;
    s->served = state_.now;
    stats_.cached_tokens += static_cast<uint64_t>(cached);
    if (!s->preempted) {
      s->admitted = clock_.now();
      s->cached_tokens = cached;
      stats_.prefix_queries += static_cast<uint64_t>(s->prompt_tokens);
      stats_.prefix_hits += static_cast<uint64_t>(cached);
    }
    state_.waiting.erase(s);
    state_.running.push_back(s);
  }
  std::vector<Sequence*> lost;
  for (const auto& [s, copies] : swapped_in) {
    const Status status = runner_.kv_swap()->to_device(copies);
    stats_.swapped_in += status.ok();
    if (status.ok()) continue;
    log_warning("request {}: its sequence will be computed again: {}", s->request.id,
                status.message());
    s->computed = s->published * kv_.block_tokens();
    lost.push_back(s);
  }
  return lost;
}

}  // namespace deltad
