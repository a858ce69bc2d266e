// The router over the CUDA backend with more variants than the device has room for: what leaves it
// lies on the host and comes back from there, never an old version in place of a new one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <thread>

#include "delta/variant_path.h"
#include "router/router.h"
#include "tests/cuda/emulated_world.h"
#include "tests/support/random_model.h"
#include "tests/unit/engine/recorder.h"
#include "tests/unit/parallel/stepper.h"

namespace deltad {
namespace {

// Waits for the end of a request.
class Answer {
 public:
  Request request() {
    Request out = testing::make_request({5, 9, 3}, 3, record_);
    out.on_event = [this](const TokenEvent& event) {
      record_->take(event);
      if (event.kind != TokenEvent::Kind::kFinished) return;
      MutexLock lock(mutex_);
      ended_ = true;
      changed_.notify_all();
    };
    return out;
  }
  std::vector<int32_t> tokens() {
    MutexLock lock(mutex_);
    while (!ended_) changed_.wait(mutex_);
    EXPECT_TRUE(record_->end.status.ok()) << record_->end.status.message();
    return record_->tokens;
  }

 private:
  const std::shared_ptr<testing::Record> record_ = std::make_shared<testing::Record>();
  Mutex mutex_;
  CondVar changed_;
  bool ended_ GUARDED_BY(mutex_) = false;
};

class EvictedVariants : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    emulated_gpu::Options options;
    options.devices = GetParam();
    options.order = emulated_gpu::Order::kRandom;
    options.idle_ms = 1;
    emulated_gpu::reset(options);
    const ModelConfig config = testing::even_model();
    testing::write_random_model(folder_, config, 1);
    for (const char* name : {"a", "b", "c"}) write(name, static_cast<uint32_t>(*name));
    base_ = testing::on_gpus(folder_.path(), GetParam());
    ASSERT_NE(base_, nullptr);
    const auto size = measure_variant(path("a"), base_->table, base_->weights(), {});
    ASSERT_TRUE(size.ok());
    bytes_ = size->bytes;
  }
  void TearDown() override {
    router_.reset();
    engine_.reset();
    base_.reset();
    EXPECT_EQ(emulated_gpu::report(), "");
    EXPECT_EQ(emulated_gpu::leaks(), "");
    EXPECT_EQ(emulated_gpu::pinned_bytes(), 0u);
    emulated_gpu::reset();
  }

  std::string path(const std::string& name) { return folder_.file(name + kVariantSuffix); }
  void write(const std::string& name, uint32_t seed) {
    // As a careful writer: under another name first.
    const std::string aside = folder_.file("aside");
    testing::write_random_delta(aside, testing::even_model(), {1, false, false, 0}, seed);
    std::filesystem::rename(aside, path(name));
  }
  // The device has room for one variant, the host for so many.
  void start(int64_t on_host) {
    EngineOptions engine;
    engine.kv_bytes = 256 << 10;
    engine.kv_host_bytes = 0;
    engine.prefix_cache = false;
    auto made = Engine::make(*base_, engine);
    ASSERT_TRUE(made.ok()) << made.status().message();
    engine_ = std::move(*made);
    RouterOptions options;
    options.base_name = "base";
    options.base_digest = base_->digest;
    options.architecture = base_->config().architecture;
    options.cache_bytes = bytes_ + bytes_ / 2;
    options.host_bytes = on_host * bytes_ + 4096 * GetParam();
    std::vector<VariantSource> sources;
    for (const char* name : {"a", "b", "c"}) sources.push_back({name, path(name)});
    auto router = Router::make(options, sources, nullptr, base_->table, base_->weights(), *engine_);
    ASSERT_TRUE(router.ok()) << router.status().message();
    router_ = std::move(*router);
  }
  std::vector<int32_t> ask(const std::string& name) {
    Answer answer;
    const auto model = router_->resolve(name);
    EXPECT_TRUE(model.ok()) << model.status().message();
    const auto ticket = router_->submit(*model, answer.request());
    EXPECT_TRUE(ticket.ok()) << ticket.status().message();
    return ticket.ok() ? answer.tokens() : std::vector<int32_t>();
  }
  CacheStats stats() { return router_->stats().cache; }
  int64_t on_host() { return router_->cache_tier(Tier::kHost).used; }
  VariantInfo info(const std::string& name) { return *router_->variant(name); }

  testing::TempFolder folder_;
  std::unique_ptr<BaseModel> base_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Router> router_;
  int64_t bytes_ = 0;
};
INSTANTIATE_TEST_SUITE_P(Gpus, EvictedVariants, ::testing::Values(1, 2));

TEST_P(EvictedVariants, ComeBackFromTheHost) {
  start(3);
  std::map<std::string, std::vector<int32_t>> first;
  for (const char* name : {"a", "b", "c"}) first[name] = ask(name);
  EXPECT_NE(first["a"], first["b"]);
  EXPECT_EQ(stats().loads, 3u);
  EXPECT_EQ(stats().demotions, 2u);
  EXPECT_EQ(on_host(), 2 * bytes_);
  for (const char* name : {"a", "b", "c", "b"}) EXPECT_EQ(ask(name), first[name]) << name;
  EXPECT_EQ(stats().loads, 3u) << "something was read again";
  EXPECT_EQ(stats().promotions, 4u);
  EXPECT_EQ(stats().demotions, 3u) << "what lies on the host already was copied again";
  EXPECT_EQ(on_host(), 3 * bytes_);
  EXPECT_EQ(info("a").promotions, 1u);
  EXPECT_EQ(info("b").promotions, 2u);
  EXPECT_EQ(info("b").loads, 1u);
  EXPECT_GT(info("b").promotion_seconds, 0);
  EXPECT_EQ(router_->stats().promotion_seconds.total(), 4u);
}

TEST_P(EvictedVariants, MakeRoomOnTheHostForThoseAskedForMoreOften) {
  start(1);
  for (const char* name : {"a", "a", "a", "b", "a", "c"}) ask(name);
  // The host kept a, of which there were more requests, and had none for b.
  EXPECT_EQ(info("a").state, VariantState::kHost);
  EXPECT_EQ(info("b").state, VariantState::kRegistered);
  EXPECT_LE(on_host(), router_->cache_tier(Tier::kHost).budget);
}

TEST_P(EvictedVariants, AreReadAgainWhereTheFileIsAnotherOne) {
  start(3);
  const auto old = ask("a");
  ask("b");
  EXPECT_EQ(info("a").state, VariantState::kHost);
  const std::string digest = info("a").digest;
  write("a", 99);
  const auto fresh = ask("a");
  EXPECT_NE(fresh, old);
  EXPECT_NE(info("a").digest, digest);
  EXPECT_EQ(info("a").promotions, 0u);
  EXPECT_EQ(info("a").loads, 2u);
  // And from then on the new one comes from the host.
  ask("b");
  EXPECT_EQ(ask("a"), fresh);
  EXPECT_EQ(info("a").promotions, 1u);
}

TEST_P(EvictedVariants, AreGoneFromTheHostWhenRemovedOrReplaced) {
  start(3);
  ask("a");
  ask("b");
  ask("c");
  EXPECT_EQ(on_host(), 2 * bytes_);
  ASSERT_TRUE(router_->remove("a").ok());
  write("b2", 77);
  ASSERT_TRUE(router_->replace({"b", path("b2")}).ok());
  // Freed by the service thread.
  const TimePoint deadline = Clock::real().now() + std::chrono::seconds(60);
  while (on_host() > 0 && Clock::real().now() < deadline) std::this_thread::yield();
  ASSERT_EQ(on_host(), 0);
  const uint64_t promotions = stats().promotions;
  ask("b");
  EXPECT_EQ(stats().promotions, promotions);
}

}  // namespace
}  // namespace deltad
