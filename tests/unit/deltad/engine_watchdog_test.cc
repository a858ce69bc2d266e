// A real engine whose backend stands still, and a clock that a test sets.
#include "deltad/engine_watchdog.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <thread>

#include "engine/threaded_engine.h"
#include "tests/unit/engine/fake_model.h"
#include "tests/unit/engine/recorder.h"

namespace deltad {
namespace {

using testing::FakeModel;
using testing::kVocab;
using testing::numbers;

class Gate {
 public:
  void pass() {
    std::unique_lock<std::mutex> lock(mutex_);
    reached_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return open_; });
  }
  void wait_until_reached() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return reached_; });
  }
  void open() {
    const std::lock_guard<std::mutex> lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false, reached_ = false;
};

TEST(EngineWatchdog, AStepThatHangsIsSeenOnceAndItsEndToo) {
  testing::FakeClock clock;
  Gate gate;
  auto model = std::make_unique<FakeModel>();
  model->before_step = [&](const Batch&) {
    gate.pass();
    return Status();
  };
  EngineLimits limits{kVocab, 512, 100};
  limits.stall = std::chrono::seconds(5);
  ThreadedEngine engine(std::move(model), FakeModel::make_kv(64, true), {}, limits, clock);
  ServerMetrics metrics;
  int dumps = 0;
  EngineWatchdog watchdog(engine, limits.stall, metrics, [&] {
    ++dumps;
    return std::string("state");
  });
  EXPECT_TRUE(watchdog.check());  // nothing runs

  Request request = testing::make_request(numbers(4), 2, nullptr);
  request.on_event = [](const TokenEvent&) {};
  ASSERT_TRUE(engine.submit(std::move(request)).ok());
  gate.wait_until_reached();
  clock.advance(4);
  EXPECT_TRUE(watchdog.check());
  EXPECT_TRUE(engine.healthy());
  clock.advance(2);
  EXPECT_FALSE(watchdog.check());
  EXPECT_FALSE(engine.healthy());
  EXPECT_FALSE(watchdog.check());
  EXPECT_EQ(dumps, 1);
  EXPECT_TRUE(metrics.operation().stalled);

  gate.open();
  while (!watchdog.check()) std::this_thread::yield();
  EXPECT_TRUE(engine.healthy());
  EXPECT_FALSE(metrics.operation().stalled);
  EXPECT_EQ(metrics.operation().stalls, 1u);
}

}  // namespace
}  // namespace deltad
