#include "engine/threaded_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <time.h>

#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include "tests/unit/engine/fake_model.h"
#include "tests/unit/engine/recorder.h"

namespace deltad {
namespace {

using testing::FakeModel;
using testing::kVocab;
using testing::numbers;
using testing::Record;

// A record that other threads can wait on.
class Inbox {
 public:
  Request request(std::vector<int32_t> prompt, int32_t max_tokens) {
    Request r = testing::make_request(std::move(prompt), max_tokens, record_);
    r.on_event = [this, record = record_](const TokenEvent& event) {
      std::lock_guard<std::mutex> lock(mutex_);
      record->take(event);
      changed_.notify_all();
    };
    return r;
  }
  Record wait() {
    return wait_for([](const Record& r) { return r.finished > 0; });
  }
  template <typename F>
  Record wait_for(F&& condition) {
    std::unique_lock<std::mutex> lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, std::chrono::seconds(120), [&] {
      return condition(*record_);
    })) << "no event came";
    return *record_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<Record> record_ = std::make_shared<Record>();
};

struct Fixture {
  explicit Fixture(EngineLimits limits = {kVocab, 512, 100}, SchedulerOptions options = {},
                   int32_t blocks = 64) {
    auto owned = std::make_unique<FakeModel>();
    model = owned.get();
    engine = std::make_unique<ThreadedEngine>(std::move(owned), FakeModel::make_kv(blocks, true),
                                              options, limits);
  }
  FakeModel* model;
  std::unique_ptr<ThreadedEngine> engine;
};

TEST(ThreadedEngine, AnswersARequest) {
  Fixture f;
  Inbox inbox;
  ASSERT_TRUE(f.engine->submit(inbox.request(numbers(40), 20)).ok());
  const Record record = inbox.wait();
  EXPECT_EQ(record.tokens.size(), 20u);
  EXPECT_EQ(record.end.reason, FinishReason::kLength);
  EXPECT_EQ(record.end.prompt_tokens, 40);
  EXPECT_EQ(record.end.output_tokens, 20);
}

}  // namespace
}  // namespace deltad
