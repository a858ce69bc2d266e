// An EngineCore on the fake model and a fake clock, stepped by hand, with the invariants of its
// state checked after every step.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>
#include <vector>

#include "engine/check_request.h"
#include "engine/engine_core.h"
#include "tests/unit/engine/fake_model.h"
#include "tests/unit/engine/recorder.h"

namespace deltad::testing {

struct CoreSettings {
  int32_t blocks = 64;
  int32_t block_tokens = 16;
  bool prefix_cache = true;
  int32_t slots = 64;
  int32_t host_blocks = 0;  // for preempted sequences
  int32_t device_top = -1;  // what a device samples
  bool roles_differ = false;
  int32_t max_context = 0;  // 0: what the blocks hold
  SchedulerOptions scheduler = {};
};

class CoreFixture {
 public:
  explicit CoreFixture(const CoreSettings& settings = {})
      : settings_(settings),
        model(settings.slots, settings.host_blocks),
        context(settings.max_context > 0 ? settings.max_context
                                         : settings.blocks * settings.block_tokens),
        core(model,
             FakeModel::make_kv(settings.blocks, settings.prefix_cache, settings.block_tokens),
             settings.scheduler, context, clock) {
    model.swap.kv = core.kv().view();
    model.most_sampled_top_of_device = settings.device_top;
    model.roles_of_device = settings.roles_differ;
  }

  RequestHandle submit(Request request) {
    const Status status = check_request(request, context);
    EXPECT_TRUE(status.ok()) << status.message();
    core.accept(++last_handle_, std::move(request));
    return last_handle_;
  }
  std::shared_ptr<Record> submit(std::vector<int32_t> prompt, int32_t max_tokens,
                                 const VariantRef& variant = nullptr) {
    auto record = std::make_shared<Record>();
    Request request = make_request(std::move(prompt), max_tokens, record);
    request.variant = variant;
    submit(std::move(request));
    return record;
  }
  void step() {
    const int64_t before = model.steps;
    core.step();
    if (model.steps > before) {
      EXPECT_LE(static_cast<int32_t>(model.last_batch.ids.size()),
                settings_.scheduler.max_step_rows);
    }
    check();
  }
  // Steps until no request is left.
  void run(int most = 100000) {
    while (!core.idle() && most-- > 0) step();
    ASSERT_TRUE(core.idle()) << "it does not come to an end";
    EXPECT_EQ(core.kv().pool().used(), 0) << "blocks leaked";
    EXPECT_EQ(core.stats().kv_host_blocks_used, 0) << "host blocks leaked";
  }

  void check() const {
    const SchedulerState& state = core.state();
    EXPECT_LE(static_cast<int32_t>(state.running.size()), settings_.scheduler.max_running);
    std::map<int32_t, int32_t> refs;
    for (const Sequence* s : state.running) {
      EXPECT_TRUE(s->running);
      EXPECT_TRUE(s->host_blocks.empty());
      EXPECT_FALSE(state.waiting.contains(const_cast<Sequence*>(s)));
      EXPECT_LE(s->computed, s->size());
      EXPECT_LE(s->computed, static_cast<int32_t>(s->blocks.size()) * settings_.block_tokens);
      EXPECT_LE(s->published * settings_.block_tokens, s->computed);
      EXPECT_LT(s->size(), s->length_limit + (s->request.max_tokens == 0));
      std::set<int32_t> distinct(s->blocks.begin(), s->blocks.end());
      EXPECT_EQ(distinct.size(), s->blocks.size()) << "a block twice in one sequence";
      for (const int32_t block : s->blocks) ++refs[block];
    }
    EXPECT_EQ(state.waiting.all().size(), state.waiting.size());
    int64_t host_blocks = 0;
    for (const Sequence* s : state.waiting.all()) {
      host_blocks += static_cast<int64_t>(s->host_blocks.size());
      EXPECT_FALSE(s->running);
      EXPECT_TRUE(s->blocks.empty());
      EXPECT_EQ(s->computed, 0);
    }
    EXPECT_EQ(core.stats().kv_host_blocks_used, host_blocks);
    const BlockPool& pool = core.kv().pool();
    for (int32_t b = 0; b < pool.size(); ++b) {
      const auto at = refs.find(b);
      ASSERT_EQ(pool.refs(b), at == refs.end() ? 0 : at->second) << "block " << b;
    }
    EXPECT_EQ(pool.free() + pool.cached() + static_cast<int32_t>(refs.size()), pool.size());
  }

 private:
  const CoreSettings settings_;

 public:
  FakeModel model;
  FakeClock clock;
  const int32_t context;
  EngineCore core;

 private:
  RequestHandle last_handle_ = 0;
};

}  // namespace deltad::testing
