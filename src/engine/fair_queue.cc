#include "engine/fair_queue.h"

#include <algorithm>
#include <utility>

namespace deltad {

void FairQueue::join(Sequence* sequence, double weight) {
  const Variant* variant = sequence->variant();
  const std::string digest = variant == nullptr ? "" : variant->digest;
  FlowClass& in = classes_[sequence->request.priority];
  std::unique_ptr<Flow>& flow = in.flows[digest];
  if (!flow) {
    flow = std::make_unique<Flow>();
    flow->home = &in;
    flow->priority = sequence->request.priority;
    flow->digest = digest;
    flow->weight = weight;
    flow->counter = floor(in);
  }
  if (flow->weight != weight) change(flow.get(), [&] { flow->weight = weight; });
  if (flow->members++ == 0) {
    in.idle.erase({owes_until(*flow), flow.get()});
    flow->counter = std::max(flow->counter, floor(in));
  }
  sequence->flow = flow.get();
}

void FairQueue::leave(Sequence* sequence) {
  Flow* flow = std::exchange(sequence->flow, nullptr);
  if (--flow->members > 0) return;
  const auto in = classes_.find(flow->priority);
  in->second.idle.insert({owes_until(*flow), flow});
  // What an empty class knows of the past is of no use.
  if (in->second.idle.size() == in->second.flows.size()) classes_.erase(in);
}

void FairQueue::unlink(Flow* flow) {
  if (flow->waiting.empty()) return;
  FlowClass& in = *flow->home;
  in.waiting.erase(flow);
  in.waiting_weight = in.waiting.empty() ? 0 : in.waiting_weight - flow->weight;
  by_age_.erase(flow);
}

void FairQueue::link(Flow* flow) {
  if (flow->waiting.empty()) return;
  FlowClass& in = *flow->home;
  in.waiting.insert(flow);
  in.waiting_weight += flow->weight;
  by_age_.insert(flow);
}

// Nothing of what a set is ordered by may change while it holds the flow.
template <typename Change>
void FairQueue::change(Flow* flow, Change&& change) {
  unlink(flow);
  change();
  link(flow);
}

void FairQueue::insert(Sequence* sequence, TimePoint now) {
  Flow* flow = sequence->flow;
  // Only a new first one moves the flow.
  if (!flow->waiting.empty() && Sooner()(*flow->waiting.begin(), sequence)) {
    size_ += flow->waiting.insert(sequence).second;
    return;
  }
  change(flow, [&] {
    if (flow->waiting.empty()) flow->since = now;
    size_ += flow->waiting.insert(sequence).second;
  });
}

void FairQueue::erase(Sequence* sequence) {
  Flow* flow = sequence->flow;
  if (!flow->waiting.empty() && *flow->waiting.begin() != sequence)
    size_ -= flow->waiting.erase(sequence);
  else
    change(flow, [&] { size_ -= flow->waiting.erase(sequence); });
}

bool FairQueue::contains(Sequence* sequence) const {
  return sequence->flow != nullptr && sequence->flow->waiting.count(sequence) > 0;
}

std::vector<Sequence*> FairQueue::all() const {
  std::vector<Sequence*> out;
  for (const auto& [priority, in] : classes_)
    for (const Flow* flow : in.waiting)
      out.insert(out.end(), flow->waiting.begin(), flow->waiting.end());
  return out;
}

void FairQueue::charge(Flow* flow, int32_t tokens) {
  if (tokens <= 0) return;
  change(flow, [&] { flow->counter += tokens / flow->weight; });
}

void FairQueue::serve(Flow* flow, TimePoint now) {
  if (flow->since != now) change(flow, [&] { flow->since = now; });
}

void FairQueue::set_entry(Flow* flow, double tokens) {
  const double entry = tokens / flow->weight;
  if (entry == flow->entry) return;
  change(flow, [&] { flow->entry = entry; });
}

void FairQueue::advance(const std::vector<Sequence*>& running) {
  ++step_;
  for (auto& [priority, in] : classes_) {
    in.backlog = !in.waiting.empty();
    in.least = in.backlog ? (*in.waiting.begin())->key() : 0;
    in.most = in.virtual_time;
  }
  for (const Sequence* s : running) {
    Flow* flow = s->flow;
    FlowClass& in = *flow->home;
    in.most = std::max(in.most, flow->counter);
    if (!s->left_rows) continue;
    flow->behind = step_;
    in.least = in.backlog ? std::min(in.least, flow->counter) : flow->counter;
    in.backlog = true;
  }
  for (auto& [priority, in] : classes_) {
    // When nobody wants more, nobody owes anything.
    in.virtual_time = in.backlog ? std::max(in.virtual_time, in.least) : in.most;
    while (!in.idle.empty() && in.idle.begin()->first <= in.virtual_time) {
      const std::string digest = in.idle.begin()->second->digest;
      in.idle.erase(in.idle.begin());
      in.flows.erase(digest);
    }
  }
  for (const Sequence* s : running) {
    Flow* flow = s->flow;
    if (flow->behind != step_ && flow->waiting.empty())
      flow->counter = std::max(flow->counter, floor(*flow->home));
  }
}

}  // namespace deltad
