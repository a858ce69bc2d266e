// Planner: one plan_step at work. Made, run and thrown away; scheduler.h says by which rules.
// planner.cc: the order of things and generating rows; planner_shares.cc: how many of these;
// planner_prompts.cc: prompts and admissions; planner_background.cc: what is not urgent at all;
// planner_room.cc: whose place is taken.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "engine/block_ledger.h"
#include "engine/scheduler.h"

namespace deltad {

class Planner {
 public:
  explicit Planner(const SchedulerState& state);
  StepPlan run();

 private:
  // Few variants, looked up often: cheaper than a hash table, and without a node for each.
  class VariantSet {
   public:
    bool contains(const Variant* v) const {
      return std::binary_search(all_.begin(), all_.end(), v);
    }
    bool insert(const Variant* v) {  // false: was there
      const auto at = std::lower_bound(all_.begin(), all_.end(), v);
      if (at != all_.end() && *at == v) return false;
      all_.insert(at, v);
      return true;
    }
    size_t size() const { return all_.size(); }

   private:
    std::vector<const Variant*> all_;
  };

  // A flow that has sequences running or admitted, as the plan goes on.
  struct Work {
    const Flow* flow;
    double counter;                     // with the rows planned so far
    std::vector<Sequence*> running;     // in order of admission
    std::vector<Sequence*> generating;  // of these, with a slot
    std::vector<Sequence*> prompts;     // of these, in their order
    size_t next_generating = 0, next_prompt = 0;
    std::set<Sequence*, Sooner>::const_iterator next_waiting;

    bool background() const { return flow->priority == kBackgroundPriority; }
    bool more_prompts() const { return next_prompt < prompts.size(); }
    bool more_waiting() const { return next_waiting != flow->waiting.end(); }
  };

  size_t work_of(const Flow* flow);
  void choose_variants();
  void group();
  // The least goes first. Counts the bytes of a delta of which the step has no row yet.
  double key(const Work& work) const;
  bool present(const Variant* variant) const {
    return variant == nullptr || present_.contains(variant);
  }
  double bytes_with(const Variant* variant) const;

  void make_room();
  int32_t needed_blocks(const Sequence* s);
  void grant(Sequence* head);
  bool take_places(Sequence* head);
  double counter_with(const Sequence* head) const;
  Work* furthest_ahead();
  bool nothing_to_take(const Flow& flow);
  bool may_admit(const Sequence* s) const { return open_ || granted_.count(s) > 0; }

  void plan_generating();
  static bool keeps_memory_before(const Sequence* a, const Sequence* b);
  bool places_free() const;
  std::optional<int32_t> most_urgent_prompts() const;
  size_t generating_allowed(size_t ready);
  std::vector<Sequence*> choose_generating(size_t most);
  void fill_up();
  void add_rows(Sequence* s, int32_t first, int32_t rows);

  void plan_background();
  std::vector<Sequence*> background_in_order(bool* stand_still);
  bool background_block(Sequence* s);
  int32_t background_rows_left(const Variant* variant) const;

  void plan_prompts();
  void plan_class(int32_t priority, const FlowClass& in);
  void plan_overdue();
  const Flow* oldest_waiting() const;
  const Sequence* next_prompt(const Work& work) const;
  bool plan_next(Work& work);
  std::vector<int32_t> cached_blocks(const Sequence* s) const;
  int32_t wanted_blocks(const Sequence* s, const std::vector<int32_t>& cached) const;
  bool admit(Sequence* s);
  void plan_chunk(Sequence* s, int32_t computed, bool may_adopt);
  int32_t least_prompt_rows() const;
  bool somebody_has_credit(const FlowClass& in) const;
  int32_t filling_rows_left(const Flow& flow) const;
  int32_t prompt_rows_left(const Variant* variant) const;

  void assign_slots();

  bool slot_left() const { return static_cast<int32_t>(chosen_.size()) < options_.max_slots; }
  bool has_slot(const Sequence* s) const {
    return s->variant() == nullptr || chosen_.contains(s->variant());
  }
  bool is_preempted(Sequence* s) const { return preempted_.count(s) > 0; }
  bool grows(const Sequence* s) const {
    return kv_.blocks_for(s->size()) > static_cast<int32_t>(s->blocks.size());
  }
  void note_preempted(Sequence* s);
  bool overdue(TimePoint since) const {
    return seconds(state_.now - since) >= options_.age_seconds;
  }

  const SchedulerState& state_;
  const SchedulerOptions& options_;
  const KvCache& kv_;
  const int32_t block_tokens_;
  BlockLedger ledger_;
  StepPlan plan_;
  std::vector<Work> works_;
  std::unordered_map<const Flow*, size_t> work_index_;
  VariantSet chosen_;                // have a slot
  VariantSet present_;               // have rows
  double delta_bytes_ = 0;           // of these
  std::vector<Sequence*> left_out_;  // generating, but without a row so far
  int32_t owed_rows_ = 0;            // to prompts
  double longest_ = 0;               // seconds that this step may take
  bool background_ = false;          // rows of background requests are being planned
  int32_t least_background_ = 0;     // so many rows of the step, even if they take too long
  int32_t count_ = 0;                // sequences that run after this step's admissions
  int32_t growing_ = 0;              // blocks that generating sequences need in this step
  bool open_ = true;                 // free places and memory are given out, in order
  struct Grant {
    int32_t blocks;   // kept for it
    bool took_place;  // others were preempted for it
  };
  std::unordered_map<const Sequence*, Grant> granted_;  // waiting ones that may be admitted
  int32_t passed_over_ = 0;  // blocks that stay for those that found no place
  std::unordered_set<Sequence*> preempted_;
  std::unordered_set<BlockKey, BlockKeyHash> in_step_;
};

}  // namespace deltad
