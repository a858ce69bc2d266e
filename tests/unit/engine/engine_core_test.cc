#include "engine/engine_core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "tests/unit/engine/core_fixture.h"

namespace deltad {
namespace {

using testing::CoreFixture;
using testing::CoreSettings;
using testing::kVocab;
using testing::make_request;
using testing::make_variant;
using testing::numbers;
using testing::Record;

std::vector<int32_t> alone(std::vector<int32_t> prompt, int32_t max_tokens,
                           const VariantRef& variant = nullptr) {
  CoreFixture f;
  const auto record = f.submit(std::move(prompt), max_tokens, variant);
  f.run();
  return record->tokens;
}

TEST(EngineCore, GeneratesUntilMaxTokens) {
  CoreFixture f;
  f.clock.advance(1);
  const auto record = f.submit(numbers(20), 30);
  f.run();
  EXPECT_EQ(record->tokens.size(), 30u);
  EXPECT_EQ(record->finished, 1);
  EXPECT_EQ(record->end.reason, FinishReason::kLength);
  EXPECT_EQ(record->end.prompt_tokens, 20);
  EXPECT_EQ(record->end.output_tokens, 30);
  EXPECT_EQ(record->end.cached_tokens, 0);
  EXPECT_EQ(record->end.admitted, f.clock.now());
  EXPECT_EQ(record->end.first_token, f.clock.now());
  EXPECT_EQ(f.model.steps, 30);
}

TEST(EngineCore, ManyTogetherGiveWhatEachGivesAlone) {
  CoreFixture f;
  std::vector<VariantRef> variants{nullptr};
  for (uint32_t v = 1; v < 5; ++v) variants.push_back(make_variant(v));
  std::vector<std::shared_ptr<Record>> records;
  for (int32_t i = 0; i < 15; ++i)
    records.push_back(f.submit(numbers(3 + i, i), 20, variants[static_cast<size_t>(i) % 5]));
  f.step();
  EXPECT_EQ(f.model.last_batch.groups.size(), 5u) << "one group a variant";
  EXPECT_EQ(f.model.last_slots.size(), 4u) << "the base needs no slot";
  f.run();
  for (int32_t i = 0; i < 15; ++i)
    EXPECT_EQ(records[static_cast<size_t>(i)]->tokens,
              alone(numbers(3 + i, i), 20, variants[static_cast<size_t>(i) % 5]));
  EXPECT_NE(alone(numbers(9), 20, variants[1]), alone(numbers(9), 20, variants[2]));
}

TEST(EngineCore, StopTokensEndAnswers) {
  const std::vector<int32_t> tokens = alone(numbers(10), 40);
  const int32_t stop = tokens[25];
  const auto first =
      static_cast<size_t>(std::find(tokens.begin(), tokens.end(), stop) - tokens.begin());
  for (const bool deliver : {false, true}) {
    CoreFixture f;
    auto record = std::make_shared<Record>();
    Request request = make_request(numbers(10), 40, record);
    request.stop_ids = {stop};
    request.deliver_stop_token = deliver;
    f.submit(std::move(request));
    f.run();
    EXPECT_EQ(record->tokens.size(), first + deliver);
    EXPECT_EQ(record->end.reason, FinishReason::kStop);
    EXPECT_EQ(record->end.stop_token, stop);
    EXPECT_EQ(record->end.output_tokens, static_cast<int32_t>(first) + 1);
  }
}

TEST(EngineCore, MinTokensBarsTheStopTokens) {
  CoreFixture f;
  auto record = std::make_shared<Record>();
  Request request = make_request(numbers(10), 40, record);
  for (int32_t id = 0; id < kVocab; id += 2) request.stop_ids.push_back(id);
  request.min_tokens = 30;
  f.submit(std::move(request));
  f.run();
  EXPECT_GE(record->end.output_tokens, 31);
  for (const int32_t token : record->tokens) EXPECT_EQ(token % 2, 1);
}

TEST(EngineCore, TheContextEndsAnswers) {
  CoreFixture f({.blocks = 4});  // 64 tokens
  const auto record = f.submit(numbers(60), 1000);
  const auto longest = f.submit(numbers(63), 1000);
  f.run();
  EXPECT_EQ(record->tokens.size(), 4u);
  EXPECT_EQ(record->end.reason, FinishReason::kLength);
  EXPECT_EQ(longest->tokens.size(), 1u);
}

TEST(EngineCore, NoTokensAskedForMeansThePromptIsAll) {
  CoreFixture f;
  const auto record = f.submit(numbers(40), 0);
  f.run();
  EXPECT_TRUE(record->tokens.empty());
  EXPECT_EQ(record->end.reason, FinishReason::kLength);
  // It is computed, so that the next request finds it.
  const auto next = f.submit(numbers(40), 1);
  f.run();
  EXPECT_EQ(next->end.cached_tokens, 32);
}

TEST(EngineCore, ReusesAPrefixOfTheSameVariantOnly) {
  CoreFixture f;
  const VariantRef one = make_variant(1, "same name"), two = make_variant(2, "same name");
  const VariantRef one_again = make_variant(1, "other name");
  f.submit(numbers(100), 4, one);
  f.run();
  const auto again = f.submit(numbers(100), 4, one_again), other = f.submit(numbers(100), 4, two),
             base = f.submit(numbers(100), 4);
  f.run();
  EXPECT_EQ(again->end.cached_tokens, 96);
  EXPECT_EQ(other->end.cached_tokens, 0);
  EXPECT_EQ(base->end.cached_tokens, 0);
  EXPECT_EQ(again->tokens, alone(numbers(100), 4, one));
  EXPECT_EQ(other->tokens, alone(numbers(100), 4, two));
  EXPECT_EQ(f.core.stats().prefix_queries, 400u);
  EXPECT_EQ(f.core.stats().prefix_hits, 96u);
}

TEST(EngineCore, TheLastPromptTokenIsAlwaysComputed) {
  CoreFixture f;
  const auto first = f.submit(numbers(64), 3);
  f.run();
  const auto second = f.submit(numbers(64), 3);
  f.run();
  EXPECT_EQ(second->end.cached_tokens, 48);
  EXPECT_EQ(second->tokens, first->tokens);
}

TEST(EngineCore, AnswersArePartOfTheNextPrefix) {
  CoreFixture f;
  const auto first = f.submit(numbers(20), 60);
  f.run();
  std::vector<int32_t> next = numbers(20);
  next.insert(next.end(), first->tokens.begin(), first->tokens.end());
  next.push_back(5);
  const auto second = f.submit(next, 3);
  f.run();
  EXPECT_EQ(second->end.cached_tokens, 64);  // of 81; the last token's values are not there
  EXPECT_EQ(second->tokens, alone(next, 3));
}

// Where generated rows have other bits than the same rows of a prompt.
class RolesDiffer : public ::testing::Test {
 protected:
  RolesDiffer() { settings.roles_differ = true; }
  std::vector<int32_t> alone(const std::vector<int32_t>& prompt, int32_t max_tokens) const {
    CoreSettings large;
    large.roles_differ = true;
    CoreFixture f(large);
    const auto record = f.submit(prompt, max_tokens);
    f.run();
    return record->tokens;
  }
  static std::vector<int32_t> turn_after(const Record& answer) {
    std::vector<int32_t> prompt = numbers(20);
    prompt.insert(prompt.end(), answer.tokens.begin(), answer.tokens.end());
    return prompt;
  }
  CoreSettings settings;
};

TEST_F(RolesDiffer, AnAnswerIsComputedOnceAsThePromptThatItHasBecome) {
  CoreFixture f(settings);
  const auto first = f.submit(numbers(20), 60);
  f.run();
  const std::vector<int32_t> next = turn_after(*first);
  std::vector<std::shared_ptr<Record>> answers;
  for (int i = 0; i < 2; ++i) {
    answers.push_back(f.submit(next, 20));
    f.run();
    EXPECT_EQ(answers.back()->tokens, alone(next, 20));
  }
  EXPECT_EQ(answers[0]->end.cached_tokens, 16) << "the second block has rows of both roles";
  EXPECT_EQ(answers[1]->end.cached_tokens, 64);
}

TEST_F(RolesDiffer, APreemptedSequenceTakesNoRowsThatAnotherHadAsItsPrompt) {
  settings.blocks = 6;  // less than both hold
  settings.scheduler.max_running = 1;
  CoreFixture f(settings);
  auto patient = std::make_shared<Record>(), urgent = std::make_shared<Record>();
  Request request = make_request(numbers(20), 60, patient);
  request.priority = 1;
  f.submit(std::move(request));
  while (patient->tokens.size() < 41) f.step();
  const std::vector<int32_t> next = turn_after(*patient);
  f.submit(make_request(next, 4, urgent));
  f.run();
  EXPECT_EQ(f.core.stats().preemptions, 1u);
  EXPECT_GT(f.core.stats().cached_tokens, 32u) << "each finds what is its own";
  EXPECT_EQ(urgent->tokens, alone(next, 4));
  EXPECT_EQ(patient->tokens, alone(numbers(20), 60));
}

TEST(EngineCore, ChoicesOfOneRequestComputeTheirPromptOnce) {
  CoreFixture f;
  std::vector<std::shared_ptr<Record>> records;
  for (int32_t choice = 0; choice < 4; ++choice) {
    records.push_back(std::make_shared<Record>());
    Request request = make_request(numbers(200), 8, records.back());
    request.choice = choice;
    request.sampling.temperature = 1;
    request.sampling.seed = 77;
    f.submit(std::move(request));
  }
  f.run();
  EXPECT_EQ(f.core.stats().prompt_tokens, 200u + 3 * 8);
  for (size_t choice = 1; choice < 4; ++choice) {
    EXPECT_EQ(records[choice]->end.cached_tokens, 192);
    EXPECT_NE(records[choice]->tokens, records[0]->tokens);
  }
}

TEST(EngineCore, PromptLogprobsCoverThePromptAndIgnoreTheCache) {
  CoreSettings settings;
  settings.scheduler.max_prompt_logit_rows = 24;
  CoreFixture f(settings);
  f.submit(numbers(100), 4);
  f.run();
  std::vector<std::shared_ptr<Record>> records;
  for (int time = 0; time < 2; ++time) {
    records.push_back(std::make_shared<Record>());
    Request request = make_request(numbers(100), 4, records.back());
    request.prompt_logprobs = 3;
    request.logprobs = 2;
    f.submit(std::move(request));
    f.run();
    EXPECT_EQ(records.back()->end.cached_tokens, 0);
  }
  const Record& r = *records[0];
  EXPECT_EQ(r.prompt_events, 1);
  ASSERT_EQ(r.prompt.size(), 99u);
  ASSERT_EQ(r.prompt_top.size(), 99u);
  const std::vector<int32_t> prompt = numbers(100);
  for (size_t i = 0; i < 99; ++i) {
    EXPECT_EQ(r.prompt[i].id, prompt[i + 1]);
    EXPECT_LE(r.prompt[i].logprob, 0);
    EXPECT_EQ(r.prompt_top[i].size(), 3u);
    EXPECT_EQ(r.prompt[i].logprob, records[1]->prompt[i].logprob);
  }
  ASSERT_EQ(r.tops.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    ASSERT_EQ(r.tops[i].size(), 2u);
    EXPECT_EQ(r.tops[i][0].id, r.tokens[i]) << "greedy takes the most likely";
    EXPECT_EQ(r.tops[i][0].logprob, r.logprobs[i]);
    EXPECT_GE(r.tops[i][0].logprob, r.tops[i][1].logprob);
  }
}

TEST(EngineCore, PromptLogprobsOfOneTokenAreAnEmptyList) {
  CoreFixture f;
  auto record = std::make_shared<Record>();
  Request request = make_request({7}, 0, record);
  request.prompt_logprobs = 0;
  f.submit(std::move(request));
  f.run();
  EXPECT_EQ(record->prompt_events, 1);
  EXPECT_TRUE(record->prompt.empty());
}

TEST(EngineCore, CancelFreesBlocksAtOnce) {
  CoreFixture f;
  auto running = std::make_shared<Record>(), waiting = std::make_shared<Record>();
  const RequestHandle handle = f.submit(make_request(numbers(40), 100, running));
  f.step();
  f.step();
  EXPECT_EQ(f.core.kv().pool().used(), 3);
  const RequestHandle second = f.submit(make_request(numbers(40, 1), 100, waiting));
  f.core.cancel(second);
  EXPECT_EQ(waiting->end.reason, FinishReason::kCancelled);
  f.core.cancel(handle);
  EXPECT_EQ(f.core.kv().pool().used(), 0);
  EXPECT_EQ(running->end.reason, FinishReason::kCancelled);
  EXPECT_EQ(running->tokens.size(), 2u);
  EXPECT_TRUE(f.core.idle());
  f.core.cancel(handle);
  f.core.cancel(9999);
}

TEST(EngineCore, DeadlinesEndRequestsWhereverTheyAre) {
  CoreSettings settings;
  settings.scheduler.max_running = 1;
  CoreFixture f(settings);
  auto running = std::make_shared<Record>(), waiting = std::make_shared<Record>();
  Request a = make_request(numbers(10), 100, running), b = make_request(numbers(10), 100, waiting);
  a.deadline = f.clock.now() + std::chrono::seconds(10);
  b.deadline = f.clock.now() + std::chrono::seconds(5);
  f.submit(std::move(a));
  f.submit(std::move(b));
  f.step();
  f.clock.advance(6);
  f.step();
  EXPECT_EQ(waiting->end.status.code(), Code::kDeadlineExceeded);
  EXPECT_EQ(waiting->end.admitted, TimePoint{});
  EXPECT_EQ(running->finished, 0);
  f.clock.advance(6);
  f.step();
  EXPECT_EQ(running->end.reason, FinishReason::kError);
  EXPECT_EQ(running->end.status.code(), Code::kDeadlineExceeded);
  EXPECT_EQ(running->tokens.size(), 2u);
}

TEST(EngineCore, DeadlinesAreThoseOfTheRequestsThatAreThere) {
  CoreFixture f(CoreSettings{});
  std::vector<std::shared_ptr<Record>> records;
  const auto submit = [&](int32_t tokens, double in) {
    records.push_back(std::make_shared<Record>());
    Request request = make_request(numbers(10), tokens, records.back());
    request.deadline = f.clock.now() + from_seconds(in);
    return f.submit(std::move(request));
  };
  submit(1, 5);  // ends before its time is up
  f.core.cancel(submit(100, 5));
  submit(100, 5);
  submit(100, 5);  // choices of one request have one deadline
  submit(100, 50);
  f.step();
  f.clock.advance(6);
  f.step();
  EXPECT_EQ(records[0]->end.reason, FinishReason::kLength);
  EXPECT_EQ(records[1]->end.reason, FinishReason::kCancelled);
  EXPECT_EQ(records[2]->end.status.code(), Code::kDeadlineExceeded);
  EXPECT_EQ(records[3]->end.status.code(), Code::kDeadlineExceeded);
  EXPECT_EQ(records[4]->finished, 0);
  for (const auto& record : records) EXPECT_LE(record->finished, 1);
}

TEST(EngineCore, AFailedStepEndsItsRequestsAndTheEngineGoesOn) {
  CoreSettings settings;
  settings.scheduler.max_running = 2;
  CoreFixture f(settings);
  std::vector<std::shared_ptr<Record>> records;
  for (int32_t i = 0; i < 3; ++i) records.push_back(f.submit(numbers(20, i), 5));
  f.step();
  f.model.before_step = [](const Batch&) { return internal_error("the device fell over"); };
  f.step();
  EXPECT_EQ(f.core.failed_steps_in_a_row(), 1);
  f.model.before_step = [](const Batch&) -> Status { throw std::runtime_error("thrown"); };
  f.step();
  EXPECT_EQ(f.core.failed_steps_in_a_row(), 2);
  f.model.before_step = nullptr;
  for (const auto& record : records) {
    EXPECT_EQ(record->end.reason, FinishReason::kError);
    EXPECT_EQ(record->end.status.code(), Code::kInternal);
  }
  EXPECT_EQ(records[0]->tokens.size(), 1u);
  EXPECT_THAT(records[2]->end.status.message(), ::testing::HasSubstr("thrown"));
  const auto next = f.submit(numbers(20), 5);
  f.run();
  EXPECT_EQ(next->tokens, alone(numbers(20), 5));
  EXPECT_EQ(f.core.failed_steps_in_a_row(), 0);
}

TEST(EngineCore, BadLogitsEndOnlyTheirOwnRequest) {
  CoreFixture f;
  const auto good = f.submit(numbers(20), 10), bad = f.submit(numbers(21, 3), 10);
  f.step();
  f.model.spoil = [](const Batch& batch, std::vector<float>& flat) {
    ASSERT_EQ(batch.spans.size(), 2u);
    flat[static_cast<size_t>(kVocab) + 3] = std::numeric_limits<float>::quiet_NaN();
  };
  f.step();
  f.model.spoil = nullptr;
  f.run();
  EXPECT_EQ(bad->end.reason, FinishReason::kError);
  EXPECT_EQ(bad->tokens.size(), 1u);
  EXPECT_EQ(good->tokens, alone(numbers(20), 10));
}

TEST(EngineCore, PreemptsTheLatestOfTheLeastUrgentAndLosesNothing) {
  CoreFixture f({.blocks = 8});  // 128 tokens
  std::vector<std::shared_ptr<Record>> records;
  std::vector<int32_t> priorities{0, 1, 0};
  for (int32_t i = 0; i < 3; ++i) {
    records.push_back(std::make_shared<Record>());
    Request request = make_request(numbers(16, i), 80, records.back());
    request.priority = priorities[static_cast<size_t>(i)];
    f.submit(std::move(request));
  }
  std::vector<RequestHandle> order;
  while (!f.core.idle()) {
    f.step();
    for (const Sequence* s : f.core.state().waiting.all())
      if (s->preempted && (order.empty() || order.back() != s->handle)) order.push_back(s->handle);
  }
  ASSERT_FALSE(order.empty());
  EXPECT_EQ(order.front(), 2u) << "the least urgent one first";
  EXPECT_GT(f.core.stats().preemptions, 0u);
  for (int32_t i = 0; i < 3; ++i)
    EXPECT_EQ(records[static_cast<size_t>(i)]->tokens, alone(numbers(16, i), 80)) << i;
}

TEST(EngineCore, OneRequestMayUseTheWholeCache) {
  CoreFixture f({.blocks = 4});
  const auto first = f.submit(numbers(10), 1000), second = f.submit(numbers(50, 1), 1000);
  f.run();
  EXPECT_EQ(first->tokens.size(), 54u);
  EXPECT_EQ(second->tokens.size(), 14u);
}

TEST(EngineCore, VariantsAreLetGoHoweverARequestEnds) {
  CoreFixture f;
  std::weak_ptr<const Variant> watch;
  RequestHandle handle = 0;
  const auto submit = [&](int32_t max_tokens) {
    VariantRef variant = make_variant(1);
    watch = variant;
    auto record = std::make_shared<Record>();
    Request request = make_request(numbers(20), max_tokens, record);
    request.on_event = [&watch](const TokenEvent& event) {
      if (event.kind == TokenEvent::Kind::kFinished) {
        EXPECT_TRUE(watch.expired()) << "gone before the last event";
      }
    };
    request.variant = std::move(variant);
    handle = f.submit(std::move(request));
    f.step();
  };
  submit(1);
  EXPECT_TRUE(watch.expired());
  submit(10);
  EXPECT_FALSE(watch.expired());
  f.core.cancel(handle);
  EXPECT_TRUE(watch.expired());
  submit(10);
  f.model.before_step = [](const Batch&) { return internal_error("no"); };
  f.step();
  EXPECT_TRUE(watch.expired());
}

TEST(EngineCore, ASinkThatThrowsHarmsNobody) {
  CoreFixture f;
  Request request;
  request.prompt = numbers(5);
  request.max_tokens = 3;
  request.on_event = [](const TokenEvent&) { throw std::runtime_error("sink"); };
  f.submit(std::move(request));
  const auto other = f.submit(numbers(20), 10);
  f.run();
  EXPECT_EQ(other->tokens, alone(numbers(20), 10));
}

}  // namespace
}  // namespace deltad
