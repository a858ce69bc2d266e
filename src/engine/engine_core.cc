#include "engine/engine_core.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "base/log.h"

namespace deltad {

EngineCore::EngineCore(ModelRunner& runner, KvCache kv, SchedulerOptions options,
                       int32_t max_context, const Clock& clock)
    : runner_(runner),
      kv_(std::move(kv)),
      host_(runner.kv_swap() != nullptr ? runner.host_blocks() : 0),
      max_context_(max_context),
      clock_(clock) {
  options.max_slots = runner.max_slots();
  state_.cost = StepCost(options.base_bytes);
  state_.waiting = FairQueue(options.burst_tokens);
  state_.options = std::move(options);
  state_.kv = &kv_;
}

EngineCore::~EngineCore() { cancel_all(); }

void EngineCore::accept(RequestHandle handle, Request request) {
  auto owned = std::make_unique<Sequence>(handle, std::move(request), max_context_);
  if (kv_.prefix_cache()) owned->extend_keys(kv_.block_tokens(), runner_.roles_differ());
  Sequence* sequence = owned.get();
  sequences_.emplace(handle, std::move(owned));
  if (const TimePoint deadline = sequence->request.deadline; deadline != TimePoint::max())
    deadlines_.emplace(deadline, handle);
  state_.now = clock_.now();
  ahead_.reset();
  enqueue(state_, sequence);
}

void EngineCore::cancel(RequestHandle handle) {
  const auto found = sequences_.find(handle);
  if (found != sequences_.end()) finish(found->second.get(), FinishReason::kCancelled);
}

void EngineCore::cancel_all() {
  while (!sequences_.empty()) finish(sequences_.begin()->second.get(), FinishReason::kCancelled);
}

void EngineCore::expire() {
  if (deadlines_.empty()) return;
  const TimePoint now = clock_.now();
  while (!deadlines_.empty() && deadlines_.begin()->first <= now)
    finish(sequences_.at(deadlines_.begin()->second).get(), FinishReason::kError,
           {Code::kDeadlineExceeded, "the request's deadline passed"});
}

void EngineCore::free_blocks(Sequence* sequence) {
  kv_.release(sequence->blocks);
  sequence->blocks.clear();
  sequence->computed = 0;
  sequence->published = 0;
}

void EngineCore::leave_running(Sequence* sequence) {
  auto& running = state_.running;
  running.erase(std::remove(running.begin(), running.end(), sequence), running.end());
  sequence->running = false;
}

void EngineCore::finish(Sequence* sequence, FinishReason reason, Status status,
                        int32_t stop_token) {
  leave_ahead(sequence);
  free_blocks(sequence);
  free_host_blocks(sequence);
  if (sequence->running)
    leave_running(sequence);
  else
    state_.waiting.erase(sequence);
  state_.waiting.leave(sequence);
  const auto found = sequences_.find(sequence->handle);
  const std::unique_ptr<Sequence> owned = std::move(found->second);
  sequences_.erase(found);
  deadlines_.erase({owned->request.deadline, owned->handle});
  owned->request.variant.reset();

  TokenEvent event;
  event.kind = TokenEvent::Kind::kFinished;
  event.reason = reason;
  event.status = std::move(status);
  event.stop_token = stop_token;
  event.prompt_tokens = owned->prompt_tokens;
  event.cached_tokens = owned->cached_tokens;
  event.output_tokens = owned->outputs();
  event.parked = owned->request.parked;
  event.unparked = owned->request.unparked;
  event.admitted = owned->admitted;
  event.first_token = owned->first_token;
  deliver(owned->request, event);
}

void EngineCore::deliver(const Request& request, const TokenEvent& event) {
  try {
    request.on_event(event);
  } catch (const std::exception& e) {
    log_error("request {}: its event sink threw: {}", request.id, e.what());
  }
}

EngineStats EngineCore::stats() const {
  EngineStats out = stats_;
  out.running = static_cast<int64_t>(state_.running.size());
  out.waiting = static_cast<int64_t>(state_.waiting.size());
  out.kv_blocks = kv_.blocks();
  out.kv_blocks_used = kv_.pool().used();
  out.kv_blocks_cached = kv_.pool().cached();
  out.kv_host_blocks = host_.size();
  out.kv_host_blocks_used = host_.used();
  out.workspace_bytes = runner_.workspace_bytes();
  out.block_tokens = kv_.block_tokens();
  return out;
}

}  // namespace deltad
