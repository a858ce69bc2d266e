// What the core decides beyond the nine rules (tests/contract): deadlines, replacement by a version
// with another tokenizer, the end of all, and the router's own threads under load.
#include "router/router_core.h"

#include <gmock/gmock.h>

#include <atomic>
#include <random>
#include <thread>

#include "base/log.h"
#include "router/router.h"
#include "tests/support/router_world.h"

namespace deltad {
namespace {

using ::testing::HasSubstr;
using testing::RouterWorld;

TEST(RouterCore, ADeadlineThatPassesWhileItWaitsEndsARequest) {
  RouterWorld world(RouterWorld::options(100));
  ASSERT_TRUE(world.add("a", 10).ok());
  const TimePoint deadline = world.clock.now() + std::chrono::seconds(5);
  const size_t late = world.ask("a", deadline), patient = world.ask("a");
  EXPECT_EQ(world.core.wake_time(), deadline);
  world.tick(4.9);
  EXPECT_EQ(world.asked[late].ends, 0);
  world.tick(0.1);
  EXPECT_EQ(world.asked[late].status.code(), Code::kDeadlineExceeded);
  EXPECT_THAT(world.asked[late].status.message(), HasSubstr("variant 'a' was loading"));
  world.loaded("a");
  EXPECT_TRUE(world.asked[patient].in_engine);
  // In the engine the deadline is the engine's.
  const size_t running = world.ask("a", world.clock.now() + std::chrono::seconds(1));
  world.tick(2);
  EXPECT_TRUE(world.asked[running].in_engine);
}

TEST(RouterCore, ARequestIsNeverRunWithAnotherVersionsTokenizer) {
  RouterWorld world(RouterWorld::options(100));
  ASSERT_TRUE(world.add("a", 10).ok());
  const size_t waiting = world.ask("a");
  const auto resolved = world.core.resolve("a");
  world.text = std::make_shared<TextAssets>();
  ASSERT_TRUE(world.replace("a", 10).ok());
  EXPECT_EQ(world.asked[waiting].status.code(), Code::kUnavailable);
  EXPECT_THAT(world.asked[waiting].status.message(),
              HasSubstr("replaced while the request waited"));
  const auto submitted = world.core.submit(*resolved, Request());
  EXPECT_THAT(submitted.status().message(), HasSubstr("replaced a moment ago"));
  EXPECT_EQ(world.core.requests(), 0u);
}

TEST(RouterCore, RemovalEndsThoseThatWait) {
  RouterWorld world(RouterWorld::options(100));
  ASSERT_TRUE(world.add("a", 10).ok());
  const size_t waiting = world.ask("a");
  const auto resolved = world.core.resolve("a");
  ASSERT_TRUE(world.remove("a").ok());
  EXPECT_EQ(world.asked[waiting].status.code(), Code::kNotFound);
  EXPECT_EQ(world.core.submit(*resolved, Request()).status().code(), Code::kNotFound);
  world.end_load(world.jobs.begin()->first, cancelled("removed"));
  EXPECT_EQ(world.core.tier(Tier::kDevice).used, 0);
}

TEST(RouterCore, TheEndOfAllThatWait) {
  RouterWorld world(RouterWorld::options(100));
  ASSERT_TRUE(world.add("a", 10).ok() && world.add("b", 10).ok());
  for (const char* name : {"a", "a", "b"}) world.ask(name);
  world.core.refuse_new();
  EXPECT_EQ(world.asked[world.ask("a")].status.code(), Code::kUnavailable);
  world.core.end_waiting();
  world.run();
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(world.asked[static_cast<size_t>(i)].reason, FinishReason::kCancelled);
  EXPECT_EQ(world.core.waiting(), 0u);
}

TEST(RouterCore, WhatCannotFitIsListedAsFailedOnceItsSizeIsKnown) {
  RouterWorld world(RouterWorld::options(10));
  ASSERT_TRUE(world.add("a", 11).ok());
  EXPECT_EQ(world.info("a").state, VariantState::kRegistered);
  world.ask("a");
  EXPECT_EQ(world.info("a").state, VariantState::kFailed);
  EXPECT_THAT(world.info("a").error, HasSubstr("can never fit: the budget is 10"));
  ASSERT_TRUE(world.core.set_budget(Tier::kDevice, 11).ok());
  EXPECT_EQ(world.info("a").state, VariantState::kRegistered);
}

TEST(RouterCore, AFileThatChangesAtEveryLoadIsAnErrorInTheEnd) {
  RouterWorld world(RouterWorld::options(100));
  ASSERT_TRUE(world.add("a", 10).ok());
  world.ask("a");
  const auto outdated = [&](int64_t bytes) {
    return world.load_outdated(world.jobs.begin()->first, {bytes, std::to_string(bytes)});
  };
  EXPECT_TRUE(outdated(11));
  EXPECT_TRUE(outdated(12));
  EXPECT_TRUE(outdated(13));
  EXPECT_EQ(world.asked[0].ends, 0);
  EXPECT_FALSE(outdated(14));
  EXPECT_THAT(world.asked[0].status.message(), HasSubstr("changes all the time"));
  EXPECT_EQ(world.info("a").state, VariantState::kFailed);
  world.tick(1);
  world.ask("a");
  EXPECT_TRUE(outdated(15));  // counted from the beginning
  world.loaded("a");
  EXPECT_EQ(world.asked[1].digest, "15");
}

TEST(RouterCore, EqualContentInPlaceOfItselfIsNotLoadedAgain) {
  RouterWorld world(RouterWorld::options(100));
  const auto entry = [&](const std::string& digest) {
    auto out = std::make_shared<CatalogEntry>();
    out->name = out->path = "a";
    out->digest = digest;
    world.files["a"] = {10, digest};
    return out;
  };
  ASSERT_TRUE(world.core.add(entry("1")).ok());
  world.ask("a");
  world.loaded("a");
  EXPECT_FALSE(*world.core.replace(entry("1")));
  world.run();
  EXPECT_TRUE(world.resident("a"));
  EXPECT_FALSE(world.loading("a"));
  const auto text = entry("1");
  text->text_digest = "its own tokenizer";
  EXPECT_TRUE(*world.core.replace(text));
  world.run();
  world.loaded("a");
  EXPECT_TRUE(*world.core.replace(entry("2")));
  world.run();
  world.load_fails("a", "damaged");
  EXPECT_TRUE(*world.core.replace(entry("2")));  // repaired: no back-off any more
  world.ask("a");
  EXPECT_TRUE(world.loading("a"));
}

// An engine of one thread that ends each request after a while, like the real one: the handle is
// dropped, then the event goes out.
class SmallEngine final : public Engine {
 public:
  SmallEngine() : thread_([this] { run(); }) {}
  ~SmallEngine() override {
    {
      MutexLock lock(mutex_);
      stop_ = true;
      changed_.notify_all();
    }
    thread_.join();
  }
  Result<RequestHandle> submit(Request request) override {
    MutexLock lock(mutex_);
    requests_.push_back(std::move(request));
    changed_.notify_all();
    return ++last_;
  }
  Status check(const Request&) const override { return Status(); }
  void cancel(RequestHandle) override {}
  void shutdown(TimePoint) override {
    MutexLock lock(mutex_);
    while (!requests_.empty() || busy_) changed_.wait(mutex_);
  }
  EngineStats stats() const override { return {}; }
  int32_t max_context() const override { return 100; }
  bool healthy() const override { return true; }

 private:
  void run() {
    for (;;) {
      Request request;
      {
        MutexLock lock(mutex_);
        busy_ = false;
        changed_.notify_all();
        while (requests_.empty() && !stop_) changed_.wait(mutex_);
        if (requests_.empty()) return;
        busy_ = true;
        request = std::move(requests_.front());
        requests_.erase(requests_.begin());
      }
      TokenEvent token;
      request.on_event(token);
      request.variant.reset();
      request.on_event(ended_event(FinishReason::kStop, Status()));
    }
  }
  Mutex mutex_;
  CondVar changed_;
  std::vector<Request> requests_ GUARDED_BY(mutex_);
  RequestHandle last_ GUARDED_BY(mutex_) = 0;
  bool stop_ GUARDED_BY(mutex_) = false, busy_ GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

// A disk whose variants count the bytes that are alive.
class CountingLoader final : public VariantLoader {
 public:
  static constexpr int64_t kBytes = 10;

  Result<VariantSize> measure(const std::string&) override { return VariantSize{kBytes, ""}; }
  Result<VariantRef> load(const std::string& name, const std::string&, Tier, int64_t,
                          const std::atomic<bool>& cancel) override {
    const int number = ++loads;
    std::this_thread::yield();
    if (cancel) return cancelled("stopped");
    if (number % 7 == 0) return unavailable("every seventh load fails");
    const int64_t now = alive += kBytes;
    int64_t most = most_alive;
    while (now > most && !most_alive.compare_exchange_weak(most, now)) {
    }
    auto* variant = new Variant;
    variant->name = name;
    variant->bytes = kBytes;
    return VariantRef(variant, [this](const Variant* gone) {
      delete gone;
      alive -= kBytes;
    });
  }
  Result<VariantRef> copy(const VariantRef&, Tier, const std::atomic<bool>&) override {
    return unimplemented("one tier");
  }

  std::atomic<int> loads{0};
  std::atomic<int64_t> alive{0}, most_alive{0};
};

TEST(RouterThreads, EveryRequestEndsOnceAndTheBudgetIsKept) {
  set_log_level(LogLevel::kOff);  // a line a load
  SmallEngine engine;
  auto owned = std::make_unique<CountingLoader>();
  CountingLoader& loader = *owned;
  RouterOptions options;
  options.base_name = "base";
  options.cache_bytes = 3 * CountingLoader::kBytes + 5;
  options.loader_threads = 2;
  options.retry_seconds = 1e-4;
  options.age_bound_seconds = 1e-3;
  std::vector<VariantSource> sources;
  for (int i = 0; i < 8; ++i) sources.push_back({"v" + std::to_string(i), "/"});
  auto made = Router::make(options, sources, nullptr, std::move(owned), engine);
  ASSERT_TRUE(made.ok()) << made.status().message();
  Router& router = **made;

  constexpr int kClients = 4, kRequests = 2000;
  std::vector<std::atomic<int>> ends(kClients * kRequests);
  std::vector<std::atomic<bool>> accepted(kClients * kRequests);
  const auto client = [&](int number) {
    std::mt19937 random(static_cast<uint32_t>(number));
    for (int i = 0; i < kRequests; ++i) {
      const auto index = static_cast<size_t>(number * kRequests + i);
      const auto model =
          router.resolve(random() % 10 == 0 ? "base" : "v" + std::to_string(random() % 8));
      if (!model.ok()) continue;
      Request request;
      request.prompt = {1};
      request.on_event = [&ends, index](const TokenEvent& event) {
        if (event.kind == TokenEvent::Kind::kFinished) ++ends[index];
      };
      const auto ticket = router.submit(*model, std::move(request));
      accepted[index] = ticket.ok();
      if (ticket.ok() && random() % 4 == 0) router.cancel(*ticket);
    }
  };
  std::thread administrator([&] {
    std::mt19937 random(99);
    for (int i = 0; i < 2000; ++i) {
      const std::string name = "v" + std::to_string(random() % 8);
      switch (random() % 5) {
        case 0:
          EXPECT_TRUE(router.replace({name, "/"}).ok() || !router.resolve(name).ok());
          break;
        case 1:
          if (router.remove(name).ok()) {
            EXPECT_TRUE(router.add({name, "/"}).ok());
          }
          break;
        case 2:
          if (router.pin(name).ok()) {
            EXPECT_TRUE(router.unpin(name).ok());
          }
          break;
        case 3:
          (void)router.evict(name);
          break;
        case 4:
          EXPECT_EQ(router.variants().size(), 8u);
          break;
      }
    }
  });
  std::vector<std::thread> clients;
  for (int i = 0; i < kClients; ++i) clients.emplace_back(client, i);
  for (std::thread& thread : clients) thread.join();
  administrator.join();
  router.shutdown(TimePoint::max());
  for (size_t i = 0; i < ends.size(); ++i) ASSERT_EQ(ends[i], accepted[i] ? 1 : 0) << i;
  EXPECT_LE(loader.most_alive, options.cache_bytes);
  for (const VariantInfo& info : router.variants()) EXPECT_EQ(info.waiting, 0) << info.name;
  set_log_level(LogLevel::kInfo);
}

}  // namespace
}  // namespace deltad
