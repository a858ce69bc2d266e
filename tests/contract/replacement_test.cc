// A variant replaced under its name while a hundred streams of it run, with the real engine and
// weights: running streams end on the old weights, new ones use the new, and no prefix block passes
// from one to the other, though all prompts begin alike.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "delta/loader.h"
#include "engine/base_model.h"
#include "engine/engine.h"
#include "router/router.h"

namespace deltad {
namespace {

constexpr size_t kStreams = 100;
constexpr int32_t kTokens = 64;
constexpr int32_t kCommon = 48;  // tokens that all prompts begin with: three blocks

std::string file(const std::string& name) {
  return DELTAD_GOLDEN "/variants/" + name + ".delta.safetensors";
}
const std::string kOld = file("llama/llama-row-1");
const std::string kNew = file("llama_vocab/llama_vocab-row-1");  // another fine-tune

std::vector<int32_t> prompt_of(size_t stream) {
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < kCommon; ++i) ids.push_back((31 * i) % 500 + 3);
  for (int32_t i = 0; i < 5; ++i) ids.push_back((static_cast<int32_t>(stream) * 7 + i) % 500 + 3);
  return ids;
}

// The answers to a number of requests, given on the engine's thread.
class Answers {
 public:
  explicit Answers(size_t count) : tokens_(count), ends_(count) {}

  // hold: the engine stands still from the first token until all_asked(), and when all streams have
  // their first token, until let_go().
  Request request(size_t stream, bool hold = false) {
    Request request;
    request.prompt = prompt_of(stream);
    request.max_tokens = kTokens;
    request.sampling.temperature = 1;  // tells more of the weights than the best token alone
    request.sampling.seed = stream;
    request.on_event = [this, stream, hold](const TokenEvent& event) {
      MutexLock lock(mutex_);
      if (event.kind == TokenEvent::Kind::kFinished) {
        ends_[stream] = event;
        ++ended_;
      } else {
        tokens_[stream].push_back(event.token);
        begun_ += tokens_[stream].size() == 1;
        held_ = hold && !hold_over_ && begun_ == kStreams;
      }
      changed_.notify_all();
      while (held_ || (hold && !all_asked_)) changed_.wait(mutex_);
    };
    return request;
  }
  void all_asked() {
    MutexLock lock(mutex_);
    all_asked_ = true;
    changed_.notify_all();
  }
  void wait_held() {
    MutexLock lock(mutex_);
    while (!held_) changed_.wait(mutex_);
  }
  void let_go() {
    MutexLock lock(mutex_);
    held_ = false;
    hold_over_ = true;
    changed_.notify_all();
  }
  size_t ended() {
    MutexLock lock(mutex_);
    return ended_;
  }
  void wait_all() {
    MutexLock lock(mutex_);
    while (ended_ < tokens_.size()) changed_.wait(mutex_);
  }
  const std::vector<std::vector<int32_t>>& tokens() NO_THREAD_SAFETY_ANALYSIS { return tokens_; }
  const std::vector<TokenEvent>& ends() NO_THREAD_SAFETY_ANALYSIS { return ends_; }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::vector<std::vector<int32_t>> tokens_ GUARDED_BY(mutex_);
  std::vector<TokenEvent> ends_ GUARDED_BY(mutex_);
  size_t begun_ GUARDED_BY(mutex_) = 0, ended_ GUARDED_BY(mutex_) = 0;
  bool held_ GUARDED_BY(mutex_) = false, hold_over_ GUARDED_BY(mutex_) = false;
  bool all_asked_ GUARDED_BY(mutex_) = false;
};

class Replacement : public ::testing::Test {
 protected:
  void SetUp() override {
    CpuBackendOptions backend;
    backend.threads = 2;
    backend.pin = false;
    auto base = load_base_model(DELTAD_GOLDEN "/models/llama", backend, {});
    ASSERT_TRUE(base.ok()) << base.status().message();
    base_ = std::move(*base);
  }
  std::unique_ptr<Engine> engine(bool prefix_cache) {
    EngineOptions options;
    options.kv_bytes = int64_t{64} << 20;
    options.prefix_cache = prefix_cache;
    auto made = Engine::make(base_->config(), base_->table, *base_->backend, options);
    EXPECT_TRUE(made.ok()) << made.status().message();
    return std::move(*made);
  }
  // What each stream's answer is on these weights, without router and prefix cache.
  std::vector<std::vector<int32_t>> expected(const std::string& path) {
    VariantLoadOptions options;
    options.base_digest = base_->digest;
    options.architecture = base_->config().architecture;
    const auto variant = load_variant("v", path, base_->table, *base_->backend, options);
    EXPECT_TRUE(variant.ok()) << variant.status().message();
    Answers answers(kStreams);
    const auto alone = engine(false);
    for (size_t i = 0; i < kStreams; ++i) {
      Request request = answers.request(i);
      request.variant = *variant;
      EXPECT_TRUE(alone->submit(std::move(request)).ok());
    }
    answers.wait_all();
    return answers.tokens();
  }

  std::unique_ptr<BaseModel> base_;
};

TEST_F(Replacement, RunningStreamsEndOnTheOldWeightsAndNewOnesUseTheNew) {
  const auto old_tokens = expected(kOld), new_tokens = expected(kNew);
  size_t different = 0;
  for (size_t i = 0; i < kStreams; ++i) different += old_tokens[i] != new_tokens[i];
  ASSERT_EQ(different, kStreams) << "the two versions cannot be told apart";

  const auto engine = this->engine(true);
  RouterOptions options;
  options.base_name = "llama";
  options.base_digest = base_->digest;
  options.architecture = base_->config().architecture;
  options.cache_bytes = int64_t{1} << 30;
  auto made =
      Router::make(options, {{"v", kOld}}, base_->text, base_->table, *base_->backend, *engine);
  ASSERT_TRUE(made.ok()) << made.status().message();
  Router& router = **made;

  Answers before(kStreams), after(kStreams);
  const auto submit = [&](Answers& answers, size_t stream, bool hold) {
    const auto model = router.resolve("v");
    ASSERT_TRUE(model.ok());
    const auto ticket = router.submit(*model, answers.request(stream, hold));
    ASSERT_TRUE(ticket.ok()) << ticket.status().message();
  };
  // Once it is there a request goes to the engine within submit(): else those that waited for the
  // load would come one by one, and the first might end before the last.
  ASSERT_TRUE(router.prefetch("v").ok());
  while (router.variant("v")->state != VariantState::kResident) std::this_thread::yield();
  for (size_t i = 0; i < kStreams; ++i) submit(before, i, true);
  before.all_asked();
  before.wait_held();
  ASSERT_TRUE(router.replace({"v", kNew}).ok());
  for (size_t i = 0; i < kStreams; ++i) submit(after, i, false);
  EXPECT_EQ(before.ended(), 0u);  // all hundred have begun, none has ended
  before.let_go();
  before.wait_all();
  after.wait_all();

  int32_t least_cached = kCommon;
  for (size_t i = 0; i < kStreams; ++i) {
    EXPECT_EQ(before.ends()[i].reason, FinishReason::kLength) << i;
    EXPECT_EQ(after.ends()[i].reason, FinishReason::kLength) << i;
    EXPECT_EQ(before.tokens()[i], old_tokens[i]) << "old stream " << i;
    EXPECT_EQ(after.tokens()[i], new_tokens[i]) << "new stream " << i;
    least_cached = std::min(least_cached, after.ends()[i].cached_tokens);
  }
  EXPECT_EQ(least_cached, 0);  // whoever came first found nothing of the old version

  // The old version is given back with its last stream.
  const auto size = measure_variant(kNew, base_->table, *base_->backend, {});
  ASSERT_TRUE(size.ok());
  while (router.stats().device.used != size->bytes) std::this_thread::yield();
  router.shutdown(TimePoint::max());
}

}  // namespace
}  // namespace deltad
