#include "engine/threaded_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <time.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "tests/unit/engine/fake_model.h"
#include "tests/unit/engine/recorder.h"

namespace deltad {
namespace {

using testing::FakeClock;
using testing::FakeModel;
using testing::kVocab;
using testing::make_variant;
using testing::numbers;
using testing::Record;

// The events of one request, for other threads to wait on.
class Inbox {
 public:
  Request request(std::vector<int32_t> prompt, int32_t max_tokens) {
    Request r = testing::make_request(std::move(prompt), max_tokens, nullptr);
    r.on_event = [this](const TokenEvent& event) {
      std::lock_guard<std::mutex> lock(mutex_);
      record_.take(event);
      changed_.notify_all();
    };
    return r;
  }
  Record wait() {
    return wait_for([](const Record& r) { return r.finished > 0; });
  }
  Record wait_for_tokens(size_t count) {
    return wait_for([=](const Record& r) { return r.tokens.size() >= count; });
  }
  Record now() {
    std::lock_guard<std::mutex> lock(mutex_);
    return record_;
  }

 private:
  template <typename F>
  Record wait_for(F&& condition) {
    std::unique_lock<std::mutex> lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, std::chrono::seconds(120), [&] {
      return condition(record_);
    })) << "no event came";
    return record_;
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  Record record_;
};

// A gate that the model's steps pass.
class Gate {
 public:
  void close() { set(false); }
  void open() { set(true); }
  void pass() {
    std::unique_lock<std::mutex> lock(mutex_);
    waiting_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return open_; });
    waiting_ = false;
  }
  void wait_until_somebody_waits() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return waiting_ && !open_; });
  }

 private:
  void set(bool open) {
    std::lock_guard<std::mutex> lock(mutex_);
    open_ = open;
    changed_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = true, waiting_ = false;
};

struct Setting {
  EngineLimits limits = {kVocab, 512, 100};
  SchedulerOptions scheduler = {};
  int32_t blocks = 64;
  std::function<Status(const Batch&)> before_step = nullptr;
  const Clock* clock = &Clock::real();
};

std::unique_ptr<ThreadedEngine> make(const Setting& s = {}) {
  auto model = std::make_unique<FakeModel>();
  model->before_step = s.before_step;
  return std::make_unique<ThreadedEngine>(std::move(model), FakeModel::make_kv(s.blocks, true),
                                          s.scheduler, s.limits, *s.clock);
}

TEST(ThreadedEngine, AnswersARequest) {
  const auto engine = make();
  Inbox inbox;
  ASSERT_TRUE(engine->submit(inbox.request(numbers(40), 20)).ok());
  const Record record = inbox.wait();
  EXPECT_EQ(record.tokens.size(), 20u);
  EXPECT_EQ(record.end.reason, FinishReason::kLength);
  EXPECT_EQ(engine->max_context(), 512);
  EXPECT_TRUE(engine->healthy());
}

TEST(ThreadedEngine, ManyThreadsSubmitAndCancel) {
  const auto engine = make({.limits = {kVocab, 512, 1000}, .blocks = 40});
  constexpr int kThreads = 6, kEach = 40;
  std::vector<Inbox> inboxes(kThreads * kEach);
  const VariantRef variants[] = {nullptr, make_variant(1), make_variant(2)};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) {
        const int n = t * kEach + i;
        Request request = inboxes[static_cast<size_t>(n)].request(numbers(1 + n % 70, n), 30);
        request.variant = variants[n % 3];
        const auto handle = engine->submit(std::move(request));
        ASSERT_TRUE(handle.ok());
        if (n % 5 == 0) engine->cancel(*handle);
        (void)engine->stats();
        (void)engine->healthy();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t n = 0; n < inboxes.size(); ++n) {
    const Record record = inboxes[n].wait();
    if (record.end.reason != FinishReason::kCancelled) {
      EXPECT_EQ(record.tokens.size(), 30u);
    }
  }
  engine->shutdown(TimePoint::max());
  for (Inbox& inbox : inboxes) EXPECT_EQ(inbox.now().finished, 1);
  const EngineStats stats = engine->stats();
  EXPECT_EQ(stats.running + stats.waiting, 0);
  EXPECT_EQ(stats.kv_blocks_used, 0);
  EXPECT_GT(stats.steps, 0u);
}

TEST(ThreadedEngine, CancelTakesEffectBetweenSteps) {
  const auto engine = make();
  Inbox inbox;
  const auto handle = engine->submit(inbox.request(numbers(10), 500));
  ASSERT_TRUE(handle.ok());
  inbox.wait_for_tokens(3);
  engine->cancel(*handle);
  engine->cancel(123456);
  EXPECT_NE(inbox.wait().end.reason, FinishReason::kNone);
}

TEST(ThreadedEngine, SinksMaySubmitAndCancel) {
  const auto engine = make();
  Inbox second;
  std::atomic<RequestHandle> own{0};
  Inbox first;
  Request request = first.request(numbers(10), 400);
  request.on_event = [&, inner = request.on_event](const TokenEvent& event) {
    if (event.kind == TokenEvent::Kind::kToken && own != 0) {
      engine->cancel(own);
    }
    if (event.kind == TokenEvent::Kind::kFinished) {
      EXPECT_TRUE(engine->submit(second.request(numbers(5), 2)).ok());
    }
    inner(event);
  };
  own = *engine->submit(std::move(request));
  first.wait();
  EXPECT_EQ(second.wait().tokens.size(), 2u);
}

TEST(ThreadedEngine, RefusesWhatItCannotDo) {
  const auto engine = make();
  Inbox inbox;
  EXPECT_EQ(engine->submit(inbox.request(numbers(512), 1)).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(engine->submit(inbox.request({kVocab}, 1)).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(engine->check(inbox.request({}, 1)).code(), Code::kInvalidArgument);
  EXPECT_EQ(engine->stats().waiting, 0);
}

TEST(ThreadedEngine, TheQueueIsBounded) {
  Gate gate;
  Setting setting;
  setting.limits.max_waiting = 3;
  setting.scheduler.max_running = 1;
  setting.before_step = [&gate](const Batch&) {
    gate.pass();
    return Status();
  };
  gate.close();
  const auto engine = make(setting);
  std::vector<Inbox> inboxes(10);
  ASSERT_TRUE(engine->submit(inboxes[0].request(numbers(5), 3)).ok());
  gate.wait_until_somebody_waits();
  int taken = 1;
  Code refusal = Code::kOk;
  for (size_t i = 1; i < 10; ++i) {
    const auto handle = engine->submit(inboxes[i].request(numbers(5), 3));
    if (handle.ok())
      ++taken;
    else
      refusal = handle.status().code();
  }
  EXPECT_EQ(refusal, Code::kResourceExhausted);
  EXPECT_EQ(taken, 4) << "one runs, three wait";
  EXPECT_EQ(engine->stats().waiting, 4) << "the first is still counted: its step is not over";
  gate.open();
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(inboxes[i].wait().tokens.size(), 3u);
  EXPECT_TRUE(engine->submit(inboxes[9].request(numbers(5), 3)).ok());
  inboxes[9].wait();
}

TEST(ThreadedEngine, ShutdownDrains) {
  const auto engine = make();
  std::vector<Inbox> inboxes(5);
  for (Inbox& inbox : inboxes) ASSERT_TRUE(engine->submit(inbox.request(numbers(20), 50)).ok());
  engine->shutdown(TimePoint::max());
  for (Inbox& inbox : inboxes) EXPECT_EQ(inbox.now().tokens.size(), 50u);
  EXPECT_EQ(engine->submit(inboxes[0].request(numbers(5), 1)).status().code(), Code::kUnavailable);
  engine->shutdown(TimePoint::max());
}

TEST(ThreadedEngine, ShutdownCancelsTheRestAtTheDeadline) {
  Gate gate;
  Setting setting;
  setting.before_step = [&gate](const Batch&) {
    gate.pass();
    return Status();
  };
  gate.close();
  const auto engine = make(setting);
  Inbox inbox;
  ASSERT_TRUE(engine->submit(inbox.request(numbers(20), 400)).ok());
  gate.wait_until_somebody_waits();
  std::thread closer([&] { engine->shutdown(Clock::real().now()); });
  std::deque<Inbox> late;  // accepted until the shutdown is seen
  do {
    late.emplace_back();
    std::this_thread::yield();
  } while (engine->submit(late.back().request(numbers(5), 1)).ok());
  gate.open();
  closer.join();
  EXPECT_EQ(inbox.now().end.reason, FinishReason::kCancelled);
}

TEST(ThreadedEngine, TheDestructorCancelsAll) {
  std::vector<Inbox> inboxes(20);
  {
    Setting setting;
    setting.scheduler.max_running = 4;
    const auto engine = make(setting);
    for (Inbox& inbox : inboxes) ASSERT_TRUE(engine->submit(inbox.request(numbers(9), 450)).ok());
  }
  for (Inbox& inbox : inboxes) EXPECT_EQ(inbox.now().finished, 1);
}

TEST(ThreadedEngine, IsUnhealthyAfterFailedStepsUntilOneSucceeds) {
  std::atomic<bool> broken{true};
  Setting setting;
  setting.before_step = [&broken](const Batch&) {
    return broken ? internal_error("broken") : Status();
  };
  const auto engine = make(setting);
  for (int i = 0; i < 3; ++i) {
    Inbox inbox;
    ASSERT_TRUE(engine->submit(inbox.request(numbers(5), 2)).ok());
    EXPECT_EQ(inbox.wait().end.status.code(), Code::kInternal);
  }
  // The last event comes within its step; the count is there after it.
  while (engine->healthy()) std::this_thread::yield();
  broken = false;
  Inbox inbox;
  ASSERT_TRUE(engine->submit(inbox.request(numbers(5), 2)).ok());
  EXPECT_EQ(inbox.wait().tokens.size(), 2u);
  while (!engine->healthy()) std::this_thread::yield();
}

TEST(ThreadedEngine, IsUnhealthyWhileAStepHangs) {
  Gate gate;
  FakeClock clock;
  Setting setting;
  setting.clock = &clock;
  setting.before_step = [&gate](const Batch&) {
    gate.pass();
    return Status();
  };
  gate.close();
  const auto engine = make(setting);
  Inbox inbox;
  ASSERT_TRUE(engine->submit(inbox.request(numbers(5), 2)).ok());
  gate.wait_until_somebody_waits();
  EXPECT_TRUE(engine->healthy());
  clock.advance(61);
  EXPECT_FALSE(engine->healthy());
  gate.open();
  inbox.wait();
  while (!engine->healthy()) std::this_thread::yield();
}

TEST(ThreadedEngine, AnIdleEngineTakesNoSteps) {
  const auto engine = make();
  Inbox inbox;
  ASSERT_TRUE(engine->submit(inbox.request(numbers(5), 2)).ok());
  inbox.wait();
  const auto cpu = [] {
    timespec t{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  };
  const double before = cpu();
  std::this_thread::sleep_for(std::chrono::milliseconds(400));
  EXPECT_LT(cpu() - before, 0.2) << "a busy loop would use all of the time";
}

}  // namespace
}  // namespace deltad
