// A scheduler's state made by hand: sequences with their blocks, no engine.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <vector>

#include "engine/scheduler.h"
#include "tests/unit/engine/fake_model.h"
#include "tests/unit/engine/recorder.h"

namespace deltad::testing {

class Scheduling : public ::testing::Test {
 protected:
  explicit Scheduling(int32_t blocks = 64) : kv(FakeModel::make_kv(blocks, true)) {
    state.kv = &kv;
    state.options.max_slots = 64;
    state.waiting = FairQueue(state.options.burst_tokens);
    // Exactly 1 ms a row of either kind.
    for (int i = 0; i < 300; ++i) {
      state.cost.observe(i % 50 + 1, 0, 0.001 * (i % 50 + 1));
      state.cost.observe(0, 100, 0.100);
    }
  }
  Sequence* make(int32_t prompt, int32_t max_tokens = 100, VariantRef variant = nullptr,
                 int32_t priority = 0) {
    Request request;
    request.prompt = numbers(prompt, static_cast<int32_t>(owned.size()));
    request.max_tokens = max_tokens;
    request.variant = std::move(variant);
    request.priority = priority;
    owned.push_back(std::make_unique<Sequence>(owned.size() + 1, std::move(request), 1024));
    owned.back()->extend_keys(16, false);
    return owned.back().get();
  }
  Sequence* waiting(int32_t prompt, int32_t max_tokens = 100, VariantRef variant = nullptr,
                    int32_t priority = 0) {
    Sequence* s = make(prompt, max_tokens, std::move(variant), priority);
    enqueue(state, s);
    return s;
  }
  // A running prompt of which `computed` tokens are done.
  Sequence* running(int32_t prompt, int32_t computed, VariantRef variant = nullptr,
                    int32_t priority = 0) {
    Sequence* s = make(prompt, 100, std::move(variant), priority);
    run(s);
    s->computed = computed;
    return s;
  }
  // One that is at its second token.
  Sequence* generating(int32_t prompt, VariantRef variant = nullptr, int32_t priority = 0) {
    Sequence* s = make(prompt, 100, std::move(variant), priority);
    run(s);
    s->computed = prompt;
    s->tokens.push_back(1);
    return s;
  }
  void run(Sequence* s) {
    if (s->flow == nullptr) state.waiting.join(s, 1);
    s->running = true;
    s->admission = ++admissions;
    s->turn = ++state.turns;
    for (int32_t i = 0; i < kv.blocks_for(s->size()); ++i) s->blocks.push_back(kv.take());
    state.running.push_back(s);
  }
  static std::map<const Sequence*, int32_t> rows(const StepPlan& plan) {
    std::map<const Sequence*, int32_t> out;
    for (const PlannedRows& r : plan.rows) out[r.sequence] += r.rows;
    return out;
  }

  KvCache kv;
  SchedulerState state;
  std::vector<std::unique_ptr<Sequence>> owned;
  uint64_t admissions = 0;
};

}  // namespace deltad::testing
