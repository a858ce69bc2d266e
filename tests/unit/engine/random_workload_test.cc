// The property that matters most: what a request gets does not depend on what else is going on.
// Random workloads on small caches, against each request alone on a large one.
#include <gtest/gtest.h>

#include <random>

#include "tests/unit/engine/core_fixture.h"

namespace deltad {
namespace {

using testing::CoreFixture;
using testing::CoreSettings;
using testing::kVocab;
using testing::make_variant;
using testing::Record;

class Workload {
 public:
  explicit Workload(uint32_t seed) : random_(seed) {
    for (uint32_t v = 0; v < 7; ++v) variants_.push_back(make_variant(v));
    variants_.push_back(make_variant(3, "the same again"));
    settings_.block_tokens = one_of({4, 16});
    settings_.blocks = below(20) + 4;
    settings_.prefix_cache = below(4) != 0;
    settings_.slots = below(4) + 1;
    settings_.max_context = settings_.blocks * settings_.block_tokens - below(3);
    settings_.scheduler.max_step_rows = one_of({2, 3, 7, 16, 33, 64, 256});
    settings_.scheduler.max_running = one_of({1, 2, 5, 100});
    settings_.scheduler.max_prompt_logit_rows = one_of({1, 5, 64});
    settings_.host_blocks = one_of({0, 3, 40});
    settings_.device_top = one_of({-1, 1, 32});
    settings_.roles_differ = below(2) == 0;
    for (int i = 0; i < 3; ++i) systems_.push_back(tokens(below(settings_.max_context / 2)));
  }

  void run() {
    CoreFixture f(settings_);
    f.model.before_step = [this, &f](const Batch& batch) {
      f.clock.advance(0.001 * static_cast<double>(batch.ids.size()) * (1 + below(30)));
      return Status();
    };
    std::vector<Request> requests;
    std::vector<std::shared_ptr<Record>> records;
    std::vector<RequestHandle> handles;
    const int total = 30;
    int guard = 0;
    while (requests.size() < total || !f.core.idle()) {
      ASSERT_LT(++guard, 200000) << "it does not come to an end";
      if (requests.size() < total && (f.core.idle() || below(3) == 0)) {
        Request request = make();
        const int32_t choices = below(4) == 0 ? 3 : 1;
        for (int32_t choice = 0; choice < choices; ++choice) {
          request.choice = choice;
          requests.push_back(request);
          records.push_back(std::make_shared<Record>());
          Request sent = request;
          sent.on_event = [record = records.back()](const TokenEvent& e) { record->take(e); };
          handles.push_back(f.submit(std::move(sent)));
          if (requests.size() > 1 && below(2) == 0) remember(requests, records);
        }
      }
      if (below(40) == 0)
        f.core.cancel(handles[static_cast<size_t>(below(static_cast<int32_t>(handles.size())))]);
      f.step();
      if (::testing::Test::HasFailure()) return;
    }
    EXPECT_EQ(f.core.kv().pool().used(), 0);
    EXPECT_EQ(f.core.stats().kv_host_blocks_used, 0);
    swapped = f.core.stats().swapped_in;
    sampled = f.model.sampled_rows;
    preemptions = f.core.stats().preemptions;
    hits = f.core.stats().prefix_hits;
    for (size_t i = 0; i < requests.size(); ++i) compare(requests[i], *records[i]);
  }

  uint64_t preemptions = 0, hits = 0, swapped = 0;
  int64_t sampled = 0;  // by the device

 private:
  int32_t below(int32_t n) {
    return n <= 0 ? 0 : static_cast<int32_t>(random_() % static_cast<uint32_t>(n));
  }
  int32_t one_of(std::vector<int32_t> values) {
    return values[static_cast<size_t>(below(static_cast<int32_t>(values.size())))];
  }
  std::vector<int32_t> tokens(int32_t count) {
    std::vector<int32_t> out;
    for (int32_t i = 0; i < count; ++i) out.push_back(below(kVocab));
    return out;
  }

  // A chat: what was asked and answered so far may be how a later prompt begins.
  void remember(const std::vector<Request>& requests,
                const std::vector<std::shared_ptr<Record>>& records) {
    const auto i = static_cast<size_t>(below(static_cast<int32_t>(requests.size())));
    std::vector<int32_t> turn = requests[i].prompt;
    turn.insert(turn.end(), records[i]->tokens.begin(), records[i]->tokens.end());
    const auto at = static_cast<size_t>(below(3));
    systems_[at] = std::move(turn);
    asked_[at] = requests[i].variant;
  }

  Request make() {
    Request r;
    if (below(3) > 0) r.variant = variants_[static_cast<size_t>(below(8))];
    if (const auto at = static_cast<size_t>(below(3)); below(2) == 0) {
      r.prompt = systems_[at];
      if (below(3) > 0) r.variant = asked_[at];
    }
    const int32_t room = settings_.max_context - 1 - static_cast<int32_t>(r.prompt.size());
    const std::vector<int32_t> rest = tokens(below(std::max(1, room / one_of({1, 2, 8}))) + 1);
    r.prompt.insert(r.prompt.end(), rest.begin(), rest.end());
    r.prompt.resize(std::min<size_t>(r.prompt.size(), settings_.max_context - 1));
    r.max_tokens = below(2) == 0 ? below(8) : below(settings_.max_context);
    r.sampling.temperature = below(2) == 0 ? 0.0f : 1.0f;
    r.sampling.seed = random_();
    if (below(3) == 0) r.sampling.top_k = below(20);
    if (below(3) == 0) r.sampling.top_p = 0.8f;
    if (below(3) == 0) r.sampling.repetition_penalty = 1.3f;
    if (below(3) == 0) r.sampling.frequency_penalty = 0.4f;
    if (below(4) == 0) r.sampling.logit_bias = {{below(kVocab), 3.0f}};
    if (below(2) == 0) r.stop_ids = {below(kVocab), below(kVocab)};
    if (below(3) == 0) r.min_tokens = below(r.max_tokens);
    if (below(3) == 0) r.logprobs = below(4);
    if (below(5) == 0) r.prompt_logprobs = below(3);
    r.deliver_stop_token = below(2) == 0;
    r.priority = below(3);
    return r;
  }

  void compare(Request request, const Record& got) {
    CoreSettings settings;
    settings.blocks = 64;
    settings.prefix_cache = false;
    settings.roles_differ = settings_.roles_differ;
    settings.max_context = settings_.max_context;
    CoreFixture f(settings);
    auto expected = std::make_shared<Record>();
    request.on_event = [expected](const TokenEvent& e) { expected->take(e); };
    f.submit(std::move(request));
    f.run();
    ASSERT_EQ(got.finished, 1);
    std::vector<int32_t> tokens = expected->tokens;
    if (got.end.reason == FinishReason::kCancelled) {
      ASSERT_LE(got.tokens.size(), tokens.size());
      tokens.resize(got.tokens.size());
    } else {
      EXPECT_EQ(got.end.reason, expected->end.reason);
      EXPECT_EQ(got.end.stop_token, expected->end.stop_token);
      EXPECT_EQ(got.end.output_tokens, expected->end.output_tokens);
      EXPECT_EQ(got.prompt_events, expected->prompt_events);
    }
    EXPECT_EQ(got.tokens, tokens);
    for (size_t i = 0; i < got.tokens.size(); ++i) {
      EXPECT_EQ(got.logprobs[i], expected->logprobs[i]);
      EXPECT_TRUE(same(got.tops[i], expected->tops[i]));
    }
    if (got.prompt_events == 0) return;
    EXPECT_TRUE(same(got.prompt, expected->prompt));
    for (size_t i = 0; i < expected->prompt_top.size(); ++i)
      EXPECT_TRUE(same(got.prompt_top[i], expected->prompt_top[i]));
  }
  static bool same(const std::vector<TokenLogprob>& a, const std::vector<TokenLogprob>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [](const TokenLogprob& x, const TokenLogprob& y) {
                        return x.id == y.id && x.logprob == y.logprob;
                      });
  }

  std::mt19937 random_;
  CoreSettings settings_;
  std::vector<VariantRef> variants_;
  std::vector<std::vector<int32_t>> systems_;  // how prompts begin
  VariantRef asked_[3];                        // with which variants, mostly
};

TEST(RandomWorkload, EachRequestGetsWhatItGetsAlone) {
  uint64_t preemptions = 0, hits = 0, swapped = 0;
  int64_t sampled = 0;
  for (uint32_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    Workload workload(seed);
    workload.run();
    ASSERT_FALSE(HasFailure());
    preemptions += workload.preemptions;
    hits += workload.hits;
    swapped += workload.swapped;
    sampled += workload.sampled;
  }
  // Else the workloads test less than they should.
  EXPECT_GT(preemptions, 100u);
  EXPECT_GT(hits, 300u);
  EXPECT_GT(swapped, 50u);
  EXPECT_GT(sampled, 1000);
}

}  // namespace
}  // namespace deltad
