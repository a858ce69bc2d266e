// The router over a fake engine and real variant files: names, one load for many, failed loads,
// cancelling, changes at run time, queue bounds, shutdown.
#include "router/router.h"

#include <gmock/gmock.h>

#include <atomic>
#include <deque>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/mutex.h"
#include "engine/base_model.h"
#include "io/file_reader.h"
#include "tests/support/temp_folder.h"

namespace deltad {
namespace {

using ::testing::HasSubstr;

// Takes every request and ends it when told.
class FakeEngine final : public Engine {
 public:
  Result<RequestHandle> submit(Request request) override {
    MutexLock lock(mutex_);
    requests_.push_back(std::move(request));
    changed_.notify_all();
    return static_cast<RequestHandle>(requests_.size());
  }
  Status check(const Request& request) const override {
    return request.prompt.empty() ? invalid_argument("empty prompt") : Status();
  }
  void cancel(RequestHandle handle) override { finish(handle, FinishReason::kCancelled); }
  void shutdown(TimePoint) override {}
  EngineStats stats() const override { return {}; }
  int32_t max_context() const override { return 100; }
  bool healthy() const override { return true; }

  void finish(RequestHandle handle, FinishReason reason) {
    std::function<void(const TokenEvent&)> on_event;
    VariantRef variant;
    {
      MutexLock lock(mutex_);
      on_event = requests_[handle - 1].on_event;
      variant.swap(requests_[handle - 1].variant);
    }
    variant.reset();
    TokenEvent event;
    event.kind = TokenEvent::Kind::kFinished;
    event.reason = reason;
    on_event(event);
  }
  // Waits until `count` requests have come; the variants they came with.
  std::vector<VariantRef> wait_for(size_t count) {
    MutexLock lock(mutex_);
    while (requests_.size() < count) changed_.wait(mutex_);
    std::vector<VariantRef> out;
    for (const Request& request : requests_) out.push_back(request.variant);
    return out;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::deque<Request> requests_ GUARDED_BY(mutex_);
};

// The end of each request, by its number.
class Ends {
 public:
  Request request() {
    MutexLock lock(mutex_);
    const size_t index = ends_.size();
    ends_.emplace_back();
    Request r;
    r.prompt = {1, 2, 3};
    r.on_event = [this, index](const TokenEvent& event) {
      if (event.kind != TokenEvent::Kind::kFinished) return;
      MutexLock inner(mutex_);
      ends_[index].push_back(event);
      changed_.notify_all();
    };
    return r;
  }
  TokenEvent wait(size_t index) {
    MutexLock lock(mutex_);
    while (ends_[index].empty()) changed_.wait(mutex_);
    EXPECT_EQ(ends_[index].size(), 1u);
    return ends_[index].front();
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::vector<std::vector<TokenEvent>> ends_ GUARDED_BY(mutex_);
};

class RouterTest : public ::testing::Test {
 protected:
  void SetUp() override {
    CpuBackendOptions backend;
    backend.threads = 1;
    backend.pin = false;
    auto base = load_base_model(DELTAD_GOLDEN "/models/llama", backend, {});
    ASSERT_TRUE(base.ok()) << base.status().message();
    base_ = std::move(*base);
    const std::string good = DELTAD_GOLDEN "/variants/llama/llama-row-1.delta.safetensors";
    broken_ = folder_.file("broken.delta.safetensors");
    std::ofstream(broken_) << "no variant";
    RouterOptions options;
    options.base_name = "llama";
    options.base_digest = base_->digest;
    options.architecture = base_->config().architecture;
    options.retry_seconds = 0.05;
    options.cache_bytes = int64_t{1} << 30;
    options.max_waiting = 100;
    options.max_waiting_per_variant = 30;
    auto router = Router::make(options, {{"row", good}, {"broken", broken_}}, base_->text,
                               base_->table, *base_->backend, engine_);
    ASSERT_TRUE(router.ok()) << router.status().message();
    router_ = std::move(*router);
    good_ = good;
  }
  Result<Router::Ticket> submit(const std::string& model) {
    auto handle = router_->resolve(model);
    if (!handle.ok()) return handle.status();
    return router_->submit(*handle, ends_.request());
  }
  VariantInfo info(const std::string& name) {
    for (const VariantInfo& v : router_->variants())
      if (v.name == name) return v;
    return {};
  }

  testing::TempFolder folder_;
  std::string broken_, good_;
  std::unique_ptr<BaseModel> base_;
  FakeEngine engine_;
  Ends ends_;
  std::unique_ptr<Router> router_;
};

// One header is read although the only loader is at work.
TEST_F(RouterTest, ABrokenVariantIsRefusedBesideTheLoadOfAnother) {
  class SlowLoader final : public VariantLoader {
   public:
    Result<VariantSize> measure(const std::string& path) override {
      if (path.find("broken") != std::string::npos) return invalid_argument("no variant");
      return VariantSize{1000, "digest"};
    }
    Result<VariantRef> load(const std::string&, const std::string&, Tier, int64_t,
                            const std::atomic<bool>& stop) override {
      while (!stop) std::this_thread::yield();
      return cancelled("stopped");
    }
    Result<VariantRef> copy(const VariantRef&, Tier, const std::atomic<bool>&) override {
      return unimplemented("one tier");
    }
  };
  RouterOptions options;
  options.base_name = "llama";
  options.cache_bytes = 1 << 20;
  options.loader_threads = 1;
  auto made = Router::make(options, {{"row", good_}, {"broken", broken_}}, base_->text,
                           std::make_unique<SlowLoader>(), engine_);
  ASSERT_TRUE(made.ok()) << made.status().message();
  router_ = std::move(*made);
  ASSERT_TRUE(submit("row").ok());
  ASSERT_TRUE(submit("broken").ok());
  EXPECT_THAT(ends_.wait(1).status.message(), HasSubstr("no variant"));
  router_->shutdown(Clock::real().now());
}

TEST_F(RouterTest, WhatIsConfiguredButBrokenFailsAlone) {
  const std::string folder = folder_.path() + "/garbage";
  std::filesystem::create_directory(folder);
  std::filesystem::copy_file(good_, folder + "/v.delta.safetensors");
  std::ofstream(folder + "/tokenizer.json") << "no tokenizer";
  const std::string late = folder_.file("late.delta.safetensors");
  RouterOptions options;
  options.base_name = "llama";
  options.base_digest = base_->digest;
  options.architecture = base_->config().architecture;
  options.retry_seconds = 0.001;
  options.cache_bytes = int64_t{1} << 30;
  const auto make = [&](const std::vector<VariantSource>& variants) {
    return Router::make(options, variants, base_->text, base_->table, *base_->backend, engine_);
  };
  auto made = make({{"row", good_}, {"garbage", folder}, {"late", late}});
  ASSERT_TRUE(made.ok()) << made.status().message();
  router_ = std::move(*made);
  EXPECT_EQ(info("garbage").state, VariantState::kFailed);
  EXPECT_EQ(router_->stats().variants[static_cast<size_t>(VariantState::kFailed)], 1);
  ASSERT_TRUE(submit("garbage").ok());
  EXPECT_THAT(ends_.wait(0).status.message(), HasSubstr("tokenizer.json"));
  ASSERT_TRUE(submit("late").ok());
  EXPECT_THAT(ends_.wait(1).status.message(), HasSubstr("late.delta.safetensors"));
  ASSERT_TRUE(submit("row").ok());
  EXPECT_EQ(engine_.wait_for(1).front()->name, "row");
  // A file that comes later is taken at the next try.
  std::filesystem::copy_file(good_, late);
  Result<Router::Ticket> ticket = submit("late");
  while (!ticket.ok()) ticket = submit("late");
  EXPECT_EQ(engine_.wait_for(2).back()->name, "late");
  engine_.finish(1, FinishReason::kStop);
  engine_.finish(2, FinishReason::kStop);
  router_->shutdown(Clock::real().now());
  // A name that cannot be is a mistake of the config.
  EXPECT_FALSE(make({{"llama", good_}}).ok());
  EXPECT_FALSE(make({{"a,b", good_}}).ok());
}

TEST_F(RouterTest, AllChoicesOfARequestWaitAsOne) {
  const auto model = router_->resolve("row");
  for (int i = 0; i < 50; ++i) {  // the bound is 30
    Request request = ends_.request();
    request.follows = i > 0;
    ASSERT_TRUE(router_->submit(*model, std::move(request)).ok()) << i;
  }
  for (const VariantRef& variant : engine_.wait_for(50)) EXPECT_EQ(variant->name, "row");
  for (RequestHandle i = 1; i <= 50; ++i) engine_.finish(i, FinishReason::kStop);
}

TEST_F(RouterTest, ResolvesNames) {
  EXPECT_TRUE(router_->resolve("")->is_base);
  EXPECT_TRUE(router_->resolve("llama")->is_base);
  EXPECT_EQ(router_->resolve("row")->name, "row");
  const Status unknown = router_->resolve("nobody").status();
  EXPECT_EQ(unknown.code(), Code::kNotFound);
  EXPECT_THAT(unknown.message(), HasSubstr("Models: llama, broken, row"));
}

TEST_F(RouterTest, ManyWaitersOneLoad) {
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(submit("row").ok());
  const auto variants = engine_.wait_for(20);
  for (const VariantRef& v : variants) {
    ASSERT_NE(v, nullptr);
    EXPECT_EQ(v, variants[0]);
  }
  EXPECT_EQ(info("row").loads, 1u);
  EXPECT_EQ(info("row").state, VariantState::kResident);
}

TEST_F(RouterTest, TheBaseWaitsForNobody) {
  ASSERT_TRUE(submit("llama").ok());
  EXPECT_EQ(engine_.wait_for(1)[0], nullptr);
}

TEST_F(RouterTest, AFailedLoadFailsItsWaitersAndIsTriedAgainLater) {
  ASSERT_TRUE(submit("broken").ok());
  const TokenEvent end = ends_.wait(0);
  EXPECT_EQ(end.reason, FinishReason::kError);
  EXPECT_EQ(end.status.code(), Code::kUnavailable);
  EXPECT_THAT(end.status.message(), HasSubstr("broken.delta.safetensors"));
  EXPECT_EQ(info("broken").state, VariantState::kFailed);
  std::filesystem::copy_file(good_, broken_, std::filesystem::copy_options::overwrite_existing);
  // Within the back-off requests are refused with the reason; after it the load is tried again.
  Result<Router::Ticket> again = submit("broken");
  while (!again.ok()) {
    EXPECT_EQ(again.status().code(), Code::kUnavailable);
    std::this_thread::yield();
    again = submit("broken");
  }
  engine_.wait_for(1);
  EXPECT_EQ(info("broken").state, VariantState::kResident);
}

TEST_F(RouterTest, CancelReachesARequestWhereverItIs) {
  const auto ticket = submit("row");
  ASSERT_TRUE(ticket.ok());
  router_->cancel(*ticket);  // parked, on its way or running
  EXPECT_EQ(ends_.wait(0).reason, FinishReason::kCancelled);
  router_->cancel(*ticket);  // a second time, and an unknown one: nothing happens
  router_->cancel(12345);
}

TEST_F(RouterTest, WhatCanNeverRunCausesNoLoad) {
  auto handle = router_->resolve("row");
  Request request = ends_.request();
  request.prompt.clear();
  EXPECT_EQ(router_->submit(*handle, std::move(request)).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(info("row").state, VariantState::kRegistered);
}

// What is set aside before a load is what the loaded variant takes, for every kind of variant.
TEST_F(RouterTest, AVariantIsMeasuredBeforeItIsLoaded) {
  const auto loader =
      files_loader(base_->table, *base_->backend, {base_->digest, base_->config().architecture, 0});
  int seen = 0;
  for (const auto& file : std::filesystem::directory_iterator(DELTAD_GOLDEN "/variants/llama")) {
    const std::string path = file.path().string();
    if (!path.ends_with(".delta.safetensors")) continue;
    ++seen;
    const auto size = loader->measure(path);
    ASSERT_TRUE(size.ok()) << size.status().message();
    const std::atomic<bool> cancelled{false};
    const auto loaded = loader->load("v", path, Tier::kDevice, size->bytes, cancelled);
    ASSERT_TRUE(loaded.ok()) << loaded.status().message();
    EXPECT_EQ(static_cast<int64_t>((*loaded)->bytes), size->bytes) << path;
    EXPECT_EQ((*loaded)->digest, size->digest);
    EXPECT_EQ(loader->load("v", path, Tier::kDevice, size->bytes - 1, cancelled).status().code(),
              Code::kResourceExhausted);
  }
  EXPECT_GE(seen, 4);
}

TEST_F(RouterTest, VariantsComeChangeAndGo) {
  const std::string other = DELTAD_GOLDEN "/variants/llama/llama-matrix-1.delta.safetensors";
  EXPECT_EQ(router_->add({"row", other}).code(), Code::kConflict);
  EXPECT_EQ(router_->add({"llama", other}).code(), Code::kInvalidArgument);
  EXPECT_EQ(router_->replace({"nobody", other}).code(), Code::kNotFound);
  EXPECT_EQ(router_->remove("nobody").code(), Code::kNotFound);
  // A broken file changes nothing.
  EXPECT_THAT(router_->add({"new", broken_}).message(), HasSubstr("variant 'new'"));
  EXPECT_FALSE(router_->replace({"row", broken_}).ok());
  EXPECT_EQ(router_->resolve("new").status().code(), Code::kNotFound);

  ASSERT_TRUE(submit("row").ok());
  const VariantRef old = engine_.wait_for(1)[0];
  const auto resolved = router_->resolve("row");
  ASSERT_TRUE(router_->replace({"row", other}).ok());
  ASSERT_TRUE(router_->submit(*resolved, ends_.request()).ok());  // goes to the new one
  const VariantRef fresh = engine_.wait_for(2)[1];
  EXPECT_NE(old->digest, fresh->digest);
  EXPECT_EQ(info("row").digest, fresh->digest);

  ASSERT_TRUE(router_->add({"team/v1.5:a", good_}).ok());
  ASSERT_TRUE(submit("team/v1.5:a").ok());
  EXPECT_EQ(engine_.wait_for(3)[2]->digest, old->digest);
  ASSERT_TRUE(router_->remove("team/v1.5:a").ok());
  EXPECT_EQ(submit("team/v1.5:a").status().code(), Code::kNotFound);
}

TEST_F(RouterTest, ADamagedFileDoesNotReplaceOneThatWorks) {
  const std::string damaged = folder_.file("damaged.delta.safetensors");
  std::string content = *read_file(good_);
  content.back() = static_cast<char>(content.back() ^ 1);
  folder_.write("damaged.delta.safetensors", content);
  const Status status = router_->replace({"row", damaged});
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("variant 'row': " + damaged + ": the file is damaged"));
  ASSERT_TRUE(submit("row").ok());
  EXPECT_NE(engine_.wait_for(1)[0], nullptr);
  EXPECT_EQ(info("row").path, good_);
}

// In its place lies another version, and a larger one, before anybody asked for the first.
TEST_F(RouterTest, AFileThatWasOverwrittenFailsNobody) {
  const std::string path = folder_.file("v.delta.safetensors");
  const auto overwrite = [&](const std::string& name) {
    folder_.write("v.delta.safetensors", *read_file(DELTAD_GOLDEN "/variants/llama/" + name));
  };
  overwrite("llama-row-1.delta.safetensors");
  ASSERT_TRUE(router_->add({"v", path}).ok());
  const std::string first = info("v").digest;
  overwrite("llama-row-2.delta.safetensors");
  ASSERT_TRUE(submit("v").ok());
  const std::string second = engine_.wait_for(1)[0]->digest;
  EXPECT_NE(second, first);
  engine_.finish(1, FinishReason::kStop);
  while (!router_->evict("v").ok()) std::this_thread::yield();
  overwrite("llama-matrix-1.delta.safetensors");  // smaller
  ASSERT_TRUE(submit("v").ok());
  const std::string third = engine_.wait_for(2)[1]->digest;
  EXPECT_NE(third, second);
  EXPECT_EQ(info("v").digest, third);
  EXPECT_EQ(router_->stats().cache.load_failures, 0u);
}

TEST_F(RouterTest, AFileThatWasOnlyTouchedIsNotLoadedAgain) {
  ASSERT_TRUE(submit("row").ok());
  const VariantRef variant = engine_.wait_for(1)[0];
  ASSERT_TRUE(router_->replace({"row", good_}).ok());
  ASSERT_TRUE(submit("row").ok());
  EXPECT_EQ(engine_.wait_for(2)[1], variant);
  EXPECT_EQ(info("row").loads, 1u);
}

TEST_F(RouterTest, AConfiguredVariantIsPinnedOnlyIfItFits) {
  ASSERT_TRUE(router_->set_cache_bytes(1000).ok());
  const Status status = router_->pin("row");
  EXPECT_EQ(status.code(), Code::kConflict);
  EXPECT_THAT(status.message(), HasSubstr("the budget is 1000"));
  EXPECT_FALSE(info("row").pinned);
  EXPECT_EQ(info("row").state, VariantState::kFailed);
  EXPECT_THAT(info("row").error, HasSubstr("can never fit"));
  EXPECT_THAT(router_->pin("broken").message(), HasSubstr(broken_));
  ASSERT_TRUE(router_->set_cache_bytes(1 << 20).ok());
  EXPECT_TRUE(router_->pin("row").ok());
}

// The folder becomes that of another version before this one was loaded.
TEST_F(RouterTest, WeightsAreNotServedWithTheTextOfAnotherVersion) {
  const std::string path = folder_.file("own");
  std::filesystem::create_directory(path);
  std::filesystem::copy_file(good_, path + "/own.delta.safetensors");
  folder_.write("own/chat_template.jinja", "first");
  ASSERT_TRUE(router_->add({"own", path}).ok());
  folder_.write("own/chat_template.jinja", "other");
  ASSERT_TRUE(submit("own").ok());
  const TokenEvent end = ends_.wait(0);
  EXPECT_EQ(end.status.code(), Code::kUnavailable);
  EXPECT_THAT(end.status.message(), HasSubstr("have changed since it was registered"));
  ASSERT_TRUE(router_->replace({"own", path}).ok());
  EXPECT_EQ(router_->resolve("own")->text->chat_template_source, "other");
  ASSERT_TRUE(submit("own").ok());
  EXPECT_NE(engine_.wait_for(1)[0], nullptr);
}

TEST_F(RouterTest, WhatIsInUseIsNotEvicted) {
  ASSERT_TRUE(router_->pin("row").ok());
  ASSERT_TRUE(submit("row").ok());
  engine_.wait_for(1);
  EXPECT_TRUE(info("row").pinned);
  EXPECT_EQ(info("row").in_flight, 1);
  EXPECT_EQ(router_->evict("row").code(), Code::kConflict);
  ASSERT_TRUE(router_->unpin("row").ok());
  EXPECT_THAT(router_->evict("row").message(), HasSubstr("in use by 1 requests"));
  engine_.finish(1, FinishReason::kStop);
  // The handle's release reaches the cache through the service thread.
  while (!router_->evict("row").ok()) std::this_thread::yield();
  while (info("row").state == VariantState::kResident) std::this_thread::yield();
  ASSERT_TRUE(router_->prefetch("row").ok());
  while (info("row").state != VariantState::kResident) std::this_thread::yield();
  EXPECT_EQ(info("row").loads, 2u);
}

TEST_F(RouterTest, TooManyForOneVariantAreToldWhenToComeBack) {
  for (int i = 0; i < 30; ++i) ASSERT_TRUE(submit("row").ok());
  const Status full = submit("row").status();
  EXPECT_EQ(full.code(), Code::kResourceExhausted);
  EXPECT_THAT(full.message(), HasSubstr("30 requests for 'row'"));
  EXPECT_GE(full.retry_after(), 1);
  for (int i = 0; i < 70; ++i) ASSERT_TRUE(submit("llama").ok()) << i;
  EXPECT_THAT(submit("llama").status().message(), HasSubstr("100 requests are waiting"));
  engine_.wait_for(100);
  engine_.finish(1, FinishReason::kStop);
  EXPECT_TRUE(submit("llama").ok());
}

TEST_F(RouterTest, AVariantLargerThanTheCacheIsRefusedWithItsBytes) {
  ASSERT_TRUE(router_->set_cache_bytes(1000).ok());
  ASSERT_TRUE(submit("row").ok());
  const TokenEvent end = ends_.wait(0);
  EXPECT_EQ(end.status.code(), Code::kUnavailable);
  EXPECT_THAT(end.status.message(), HasSubstr("can never fit: the budget is 1000"));
  EXPECT_EQ(router_->set_cache_bytes(0).code(), Code::kInvalidArgument);
}

TEST(QueueBounds, OtherBoundsHoldForWhoComesLater) {
  QueueBounds bounds(2, 2);
  QueueShare share;
  ASSERT_TRUE(bounds.enter(&share, "a", {}).ok());
  ASSERT_TRUE(bounds.enter(&share, "a", {}).ok());
  bounds.set(4, 3);
  EXPECT_TRUE(bounds.enter(&share, "a", {}).ok());
  EXPECT_EQ(bounds.enter(&share, "a", {}).code(), Code::kResourceExhausted);
  bounds.set(1, 1);
  EXPECT_EQ(bounds.enter(nullptr, "", {}).code(), Code::kResourceExhausted);
  EXPECT_EQ(bounds.waiting(), 3);  // who waits stays
}

TEST(QueueBounds, RetryAfterFollowsFromTheRateAtWhichWaitingOnesAreServed) {
  QueueBounds bounds(1000, 40);
  QueueShare share;
  TimePoint now{std::chrono::hours(1)};
  // Two a second are served for a minute.
  for (int i = 0; i < 120; ++i) {
    ASSERT_TRUE(bounds.enter(&share, "v", now).ok());
    now += std::chrono::milliseconds(500);
    bounds.leave(&share, true, now);
  }
  for (int i = 0; i < 40; ++i) ASSERT_TRUE(bounds.enter(&share, "v", now).ok());
  const Status full = bounds.enter(&share, "v", now);
  EXPECT_NEAR(full.retry_after(), 20, 1);
  // Those that leave of themselves make room, and say nothing about the rate.
  bounds.leave(&share, false, now);
  EXPECT_TRUE(bounds.enter(&share, "v", now).ok());
  EXPECT_EQ(bounds.enter(&share, "v", now).retry_after(), full.retry_after());
  // Nothing is served for long: a minute at most.
  EXPECT_EQ(bounds.enter(&share, "v", now + std::chrono::minutes(5)).retry_after(), 60);
  EXPECT_EQ(bounds.waiting(), 40);
}

TEST_F(RouterTest, ShutdownRefusesNewOnes) {
  router_->shutdown(Clock::real().now());
  EXPECT_EQ(submit("row").status().code(), Code::kUnavailable);
  EXPECT_EQ(submit("llama").status().code(), Code::kUnavailable);
}

TEST(CatalogTest, RefusesWrongNamesAndPaths) {
  const std::string good = DELTAD_GOLDEN "/variants/llama/llama-row-1.delta.safetensors";
  const auto error = [&](std::vector<VariantSource> sources) {
    const auto catalog = Catalog::make("llama", sources, nullptr);
    return catalog.ok() ? std::string() : catalog.status().message();
  };
  EXPECT_THAT(error({{"llama", good}}), HasSubstr("name of the base model"));
  EXPECT_THAT(error({{"a", good}, {"a", good}}), HasSubstr("given twice"));
  EXPECT_THAT(error({{"a b", good}}), HasSubstr("space"));
  EXPECT_THAT(error({{"", good}}), HasSubstr("empty"));
  EXPECT_THAT(error({{"caf\xe9", good}}), HasSubstr("'caf\\xe9' is not UTF-8"));
  EXPECT_EQ(error({{"caf\xc3\xa9", good}}), "");
  EXPECT_THAT(error({{"a", "/nowhere"}}), HasSubstr("'/nowhere' does not exist"));
  EXPECT_EQ(error({{"team/a.b:1", good}}), "");
}

}  // namespace
}  // namespace deltad
