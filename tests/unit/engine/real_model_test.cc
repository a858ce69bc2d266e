// The engine on the real transformer and CPU backend, with a small model and its variants: what a
// request gets is bit for bit what it gets alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "delta/loader.h"
#include "engine/base_model.h"
#include "engine/engine.h"
#include "tests/unit/engine/recorder.h"

namespace deltad {
namespace {

using testing::numbers;
using testing::Record;

struct Where {
  const char* isa;
  int ranks;
};

class RealModel : public ::testing::TestWithParam<Where> {
 protected:
  void SetUp() override {
    const std::string golden = DELTAD_GOLDEN;
    CpuBackendOptions backend;
    backend.threads = 2;
    backend.isa = GetParam().isa;
    auto base = load_base_model(golden + "/models/llama", backend, {},
                                {GetParam().ranks, std::chrono::seconds(600)});
    ASSERT_TRUE(base.ok()) << base.status().message();
    base_ = std::move(*base);
    variants_.push_back(nullptr);
    for (const char* name : {"llama-matrix-1", "llama-row-1", "llama-matrix-2", "llama-row-2"}) {
      VariantLoadOptions options;
      options.base_digest = base_->digest;
      options.architecture = base_->config().architecture;
      auto variant = load_variant(name, golden + "/variants/llama/" + name + ".delta.safetensors",
                                  base_->table, base_->weights(), options);
      ASSERT_TRUE(variant.ok()) << variant.status().message();
      variants_.push_back(*variant);
    }
  }

  std::unique_ptr<Engine> make(const EngineOptions& options) {
    auto engine = Engine::make(*base_, options);
    EXPECT_TRUE(engine.ok()) << engine.status().message();
    return std::move(*engine);
  }

  struct Job {
    int32_t prompt, max_tokens;
    size_t variant;
    float temperature;
    int32_t prompt_logprobs;
  };
  // A third of the prompts begin alike.
  Request request(const Job& job, int32_t number, const std::shared_ptr<Record>& record) const {
    std::vector<int32_t> prompt = numbers(job.prompt, number % 3 == 0 ? 0 : number);
    prompt.back() = number;
    Request r = testing::make_request(std::move(prompt), job.max_tokens, record);
    r.variant = variants_[job.variant];
    r.sampling.temperature = job.temperature;
    r.sampling.seed = static_cast<uint64_t>(number);
    r.logprobs = 1;
    r.prompt_logprobs = job.prompt_logprobs;
    return r;
  }
  // Drains: the records are whole, and no other thread writes to them, once the engine is gone.
  std::vector<Record> run(const std::vector<Job>& jobs, bool together, const EngineOptions& options,
                          EngineStats* stats) {
    std::vector<std::shared_ptr<Record>> records;
    std::unique_ptr<Engine> engine;
    for (size_t i = 0; i < jobs.size(); ++i) {
      if (engine == nullptr) engine = make(options);
      records.push_back(std::make_shared<Record>());
      const auto handle = engine->submit(request(jobs[i], static_cast<int32_t>(i), records.back()));
      EXPECT_TRUE(handle.ok()) << handle.status().message();
      if (together && i + 1 < jobs.size()) continue;
      engine->shutdown(TimePoint::max());
      if (stats != nullptr) *stats = engine->stats();
      engine.reset();
    }
    std::vector<Record> out;
    for (const auto& record : records) out.push_back(*record);
    return out;
  }

  std::unique_ptr<BaseModel> base_;
  std::vector<VariantRef> variants_;
};

TEST_P(RealModel, TogetherIsBitForBitAlone) {
  std::vector<Job> jobs;
  for (int32_t i = 0; i < 15; ++i)
    jobs.push_back({3 + i * 37 % 120, 20 + i, static_cast<size_t>(i) % 5, i % 4 == 3 ? 1.0f : 0.0f,
                    i % 6 == 5 ? 1 : -1});
  EngineOptions crowded;
  crowded.kv_bytes = 200000;  // a few hundred tokens
  crowded.max_step_rows = 48;
  crowded.step_seconds = 1000;  // a slow machine makes it no less crowded
  EngineStats stats;
  const std::vector<Record> together = run(jobs, true, crowded, &stats);
  EXPECT_GT(stats.preemptions, 0u);
  EngineOptions alone;
  alone.prefix_cache = false;
  alone.kv_bytes = 4 << 20;
  const std::vector<Record> expected = run(jobs, false, alone, nullptr);
  for (size_t i = 0; i < jobs.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_EQ(together[i].end.reason, FinishReason::kLength) << together[i].end.status.message();
    EXPECT_EQ(together[i].tokens, expected[i].tokens);
    EXPECT_EQ(together[i].logprobs, expected[i].logprobs);
    ASSERT_EQ(together[i].prompt.size(), expected[i].prompt.size());
    for (size_t k = 0; k < expected[i].prompt.size(); ++k)
      EXPECT_EQ(together[i].prompt[k].logprob, expected[i].prompt[k].logprob);
  }
}

TEST_P(RealModel, VariantsAnswerDifferently) {
  std::vector<Job> jobs;
  for (size_t v = 0; v < 5; ++v) jobs.push_back({20, 40, v, 0, -1});
  std::vector<Record> records;
  for (const Job& job : jobs) {
    const auto one = run({job}, false, {}, nullptr);
    records.push_back(one[0]);
  }
  for (size_t v = 1; v < 5; ++v) EXPECT_NE(records[v].logprobs, records[0].logprobs);
}

TEST_P(RealModel, OptionsAreChecked) {
  const auto message = [&](auto change) {
    EngineOptions options;
    change(options);
    const auto engine = Engine::make(*base_, options);
    return engine.ok() ? "" : engine.status().message();
  };
  using ::testing::HasSubstr;
  EXPECT_THAT(message([](auto& o) { o.block_tokens = 8; }), HasSubstr("block_tokens"));
  EXPECT_THAT(message([](auto& o) { o.max_step_rows = 1; }), HasSubstr("max_step_rows"));
  EXPECT_THAT(message([](auto& o) { o.max_running = 0; }), HasSubstr("max_running"));
  EXPECT_THAT(message([](auto& o) { o.max_waiting = -1; }), HasSubstr("max_waiting"));
  EXPECT_THAT(message([](auto& o) { o.step_seconds = 0; }), HasSubstr("step_seconds"));
  EXPECT_THAT(message([](auto& o) { o.max_context = 513; }), HasSubstr("512"));
  EXPECT_THAT(message([](auto& o) { o.kv_bytes = 1; }), HasSubstr("KV cache"));
  EXPECT_EQ(message([](auto&) {}), "");
}

INSTANTIATE_TEST_SUITE_P(Isa, RealModel,
                         ::testing::Values(Where{"scalar", 1}, Where{"", 1}, Where{"", 2}),
                         [](const auto& info) {
                           const std::string isa = *info.param.isa == 0 ? "best" : info.param.isa;
                           return isa + (info.param.ranks > 1 ? "OnTwoRanks" : "");
                         });

}  // namespace
}  // namespace deltad
