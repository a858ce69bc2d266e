// FairQueue: who waits, and in which order they go: most urgent class first, within a class by a
// virtual token counter, within a variant by arrival. Part of the scheduler's state; the engine's
// thread only.
//
// A flow is what one variant (or the base) has in one priority class. Its counter is the tokens it
// was served divided by its weight; the least goes first. This is VTC (Sheng et al., "Fairness in
// Serving Large Language Models", OSDI 2024) with the virtual time of start-time fair queueing
// (Goyal, Vin, Cheng, SIGCOMM 1996) for its counter lift: who did not want its share does not save
// it up, but for a bounded credit. Deficit round robin (Shreedhar, Varghese, SIGCOMM 1995) must
// know a request's cost before it grants it, and nobody knows how long an answer gets; a counter is
// charged as tokens are computed.
//
// The credit: a flow that did not want its share comes back up to `credit` tokens per weight behind
// the virtual time, so it goes first until it has used them. This is the lag that borrowed virtual
// time (Duda, Cheriton, SOSP 1999) and the sleepers of Linux's CFS are given, and the burst of a
// token bucket. Without it, a flood is one more customer with whom everybody shares: one who is
// always there doubles the time that a request takes on average (processor sharing: from x / (1 −
// load) to 2 x / (1 − load); Kleinrock, "Queueing Systems" II, 1976). With it, a
// flow below its share waits as if the flood were not there, but for the step that runs.
//
// Two flows of a class that both want more all the time differ, over any window, by at most
// 2 (L + M) / the smaller weight of tokens per weight: L the most rows of a step, M the tokens that
// their running sequences have still to go. One that comes back gets its credit besides, once.
// New work goes to the one that is behind, but what runs goes on.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/sequence.h"

namespace deltad {

struct FlowClass;

struct Flow {
  FlowClass* home = nullptr;
  int32_t priority = 0;
  std::string digest;  // the variant's; "" is the base
  double weight = 1;
  double counter = 0;  // tokens / weight
  // What the bytes of its delta cost in a step that has no row of it yet, as tokens / weight: so
  // far it stands back behind those that are there.
  double entry = 0;
  int32_t members = 0;                  // sequences, waiting or running
  std::set<Sequence*, Sooner> waiting;  // new ones and preempted ones
  TimePoint since{};                    // when a prompt of it went on last, or it began to wait
  uint64_t behind = 0;                  // the last step after which it wanted more

  double key() const { return counter + entry; }
  // Served less than those that always want more.
  bool has_credit() const;
};

struct FlowByKey {
  bool operator()(const Flow* a, const Flow* b) const {
    if (a->key() != b->key()) return a->key() < b->key();
    return Sooner()(*a->waiting.begin(), *b->waiting.begin());
  }
};
struct FlowByAge {
  bool operator()(const Flow* a, const Flow* b) const {
    if (a->since != b->since) return a->since < b->since;
    return Sooner()(*a->waiting.begin(), *b->waiting.begin());
  }
};

// A priority class.
struct FlowClass {
  std::set<Flow*, FlowByKey> waiting;                            // flows with waiting sequences
  double waiting_weight = 0;                                     // of these
  std::unordered_map<std::string, std::unique_ptr<Flow>> flows;  // by digest
  std::set<std::pair<double, Flow*>> idle;  // without sequences; until when they owe
  double virtual_time = 0;                  // counters below it are lifted when they come back
  // Within advance: the least counter of those that want more, if any; and the most.
  bool backlog = false;
  double least = 0, most = 0;
};

inline bool Flow::has_credit() const { return counter < home->virtual_time; }

class FairQueue {
 public:
  // Tokens per weight that a flow may be ahead of the others when it comes back.
  explicit FairQueue(double credit = 0) : credit_(credit) {}

  // Gives a sequence its flow, which it has until leave().
  void join(Sequence* sequence, double weight);
  void leave(Sequence* sequence);

  // A joined sequence waits.
  void insert(Sequence* sequence, TimePoint now);
  // It waits no longer: admitted, or ended.
  void erase(Sequence* sequence);

  double credit() const { return credit_; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  bool contains(Sequence* sequence) const;
  std::vector<Sequence*> all() const;  // most urgent class first

  // Most urgent first.
  const std::map<int32_t, FlowClass>& classes() const { return classes_; }
  // Flows with waiting sequences, the longest wait first.
  const std::set<Flow*, FlowByAge>& by_age() const { return by_age_; }

  void charge(Flow* flow, int32_t tokens);
  // A prompt of the flow goes on: its age starts anew.
  void serve(Flow* flow, TimePoint now);
  void set_entry(Flow* flow, double tokens);
  // Moves the virtual time on. running: all that run; those marked with left_rows want more than
  // the step gives them.
  void advance(const std::vector<Sequence*>& running);

 private:
  // No counter of a flow that wants nothing more is below it.
  double floor(const FlowClass& in) const { return in.virtual_time - credit_; }
  // The virtual time from which on it is as if the flow had never been there.
  double owes_until(const Flow& flow) const { return flow.counter + credit_; }
  void unlink(Flow* flow);
  void link(Flow* flow);
  template <typename Change>
  void change(Flow* flow, Change&& change);

  std::map<int32_t, FlowClass> classes_;
  std::set<Flow*, FlowByAge> by_age_;
  double credit_;
  size_t size_ = 0;
  uint64_t step_ = 0;
};

}  // namespace deltad
