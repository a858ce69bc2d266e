// The engine on the CUDA backend: rows of the base, of signs, of a dense head and of low-rank
// factors in one batch give the CPU's greedy tokens where the margin allows, and the same bits
// whatever happens to them: prompts in chunks, prefixes that are there already, preemption,
// neighbours that are cancelled, variants that go and come. The engine is stepped by the test, so
// that each of these happens at a step that is known. Runs on a card, too.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine_core.h"
#include "engine/transformer_runner.h"
#include "tests/cuda/emulated_world.h"
#include "tests/unit/engine/recorder.h"

namespace deltad {
namespace {

using testing::kDense;
using testing::kLowRank;
using testing::kOneLevel;
using testing::kTwoLevels;
using testing::Record;

// Of a logit between the two backends (model_test.cc).
constexpr float kTolerance = 0.25f;
constexpr int32_t kBlockTokens = 16;
const char* const kAnother = "variants/llama/llama-row-1.delta.safetensors";  // of one level, too

std::vector<int32_t> prompt_of(int32_t sequence, int32_t length) {
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < length; ++i) ids.push_back((17 * sequence + 31 * i) % 500 + 3);
  return ids;
}

// The tiny model on a backend, and an engine over it.
class World {
 public:
  World(Result<std::unique_ptr<BaseModel>> base, int32_t blocks, int32_t step_rows) {
    EXPECT_TRUE(base.ok()) << base.status().message();
    base_ = std::move(*base);
    auto transformer =
        Transformer::make(base_->config(), base_->table, *base_->backend, step_rows, 96);
    EXPECT_TRUE(transformer.ok()) << transformer.status().message();
    const KvGeometry geometry{
        base_->config().layers, blocks, kBlockTokens,
        base_->backend->ops().kv_block_bytes((*transformer)->attention_shape(), kBlockTokens)};
    auto memory = base_->backend->allocate(static_cast<size_t>(geometry.bytes()));
    EXPECT_TRUE(memory.ok()) << memory.status().message();
    runner_ = std::make_unique<TransformerRunner>(std::move(*transformer), *base_->backend);
    SchedulerOptions options;
    options.max_step_rows = step_rows;
    options.step_seconds = 1e9;  // whatever a step takes on an emulated GPU
    core_ = std::make_unique<EngineCore>(*runner_, KvCache(std::move(*memory), geometry, true),
                                         options, 96, Clock::real());
  }

  // path: of a variant in tests/golden, loaded when it is first asked for; "": the base.
  RequestHandle ask(const std::string& path, std::vector<int32_t> prompt, int32_t tokens,
                    std::shared_ptr<Record> record) {
    Request request = testing::make_request(std::move(prompt), tokens, record);
    auto [at, is_new] = variants_.try_emplace(path);
    if (is_new) {
      const auto loaded = testing::load_golden_variant(*base_, path);
      EXPECT_TRUE(loaded.ok()) << path << ": " << loaded.status().message();
      if (loaded.ok()) at->second = *loaded;
    }
    request.variant = at->second;
    request.logprobs = 2;
    core_->accept(++last_, std::move(request));
    return last_;
  }
  void drop(const std::string& path) { variants_.erase(path); }
  void finish() {
    while (!core_->idle()) core_->step();
  }
  EngineCore& core() { return *core_; }

 private:
  std::unique_ptr<BaseModel> base_;
  std::map<std::string, VariantRef> variants_;
  std::unique_ptr<TransformerRunner> runner_;
  std::unique_ptr<EngineCore> core_;
  RequestHandle last_ = 0;
};

World on_cuda(int32_t blocks, int32_t step_rows) {
  return {testing::load_on_cuda("llama"), blocks, step_rows};
}
World on_cpu() {
  return {
      load_base_model(testing::golden("models/llama"), CpuBackendOptions{1, false, ""}, nullptr),
      64, 64};
}

struct Asked {
  const char* variant;
  std::vector<int32_t> prompt;
  int32_t tokens;
};
// One of each kind. The first prompt fills a KV block, the others grow into their second one.
std::vector<Asked> one_of_each() {
  std::vector<Asked> all;
  for (const char* variant : {"", kOneLevel, kTwoLevels, kDense, kLowRank}) {
    const auto i = static_cast<int32_t>(all.size());
    all.push_back({variant, prompt_of(i, 17 - i), 7});
  }
  return all;
}

std::vector<std::shared_ptr<Record>> ask_all(World& world, const std::vector<Asked>& asked) {
  std::vector<std::shared_ptr<Record>> records;
  for (const Asked& a : asked) {
    records.push_back(std::make_shared<Record>());
    world.ask(a.variant, a.prompt, a.tokens, records.back());
  }
  return records;
}

void expect_ended(const Record& record, FinishReason reason) {
  ASSERT_EQ(record.finished, 1);
  EXPECT_EQ(record.end.reason, reason) << record.end.status.message();
}

// To the bit.
void expect_same(const Record& got, const Record& want, const std::string& what) {
  EXPECT_EQ(got.tokens, want.tokens) << what;
  EXPECT_EQ(got.logprobs, want.logprobs) << what;
}

class CudaEngine : public testing::EmulatedGpuTest {
 protected:
  void SetUp() override {
    emulated_gpu::Options options;
    options.order = emulated_gpu::Order::kRandom;
    options.seed = 11;
    emulated_gpu::reset(options);
  }
};

TEST_F(CudaEngine, AnswersAsTheCpuWhateverHappensToTheSequences) {
  const std::vector<Asked> asked = one_of_each();
  World cpu = on_cpu();
  const auto expected = ask_all(cpu, asked);
  cpu.finish();
  std::vector<std::shared_ptr<Record>> plain;
  {
    World world = on_cuda(64, 128);
    plain = ask_all(world, asked);
    world.finish();
    size_t equal = 0;
    for (size_t s = 0; s < asked.size(); ++s) {
      SCOPED_TRACE(asked[s].variant);
      expect_ended(*plain[s], FinishReason::kLength);
      ASSERT_EQ(plain[s]->tokens.size(), expected[s]->tokens.size());
      for (size_t t = 0; t < expected[s]->tokens.size(); ++t) {
        if (plain[s]->tokens[t] != expected[s]->tokens[t]) {
          const auto& top = expected[s]->tops[t];
          EXPECT_LE(top[0].logprob - top[1].logprob, 2 * kTolerance) << "token " << t;
          break;  // what follows has another context
        }
        EXPECT_NEAR(plain[s]->logprobs[t], expected[s]->logprobs[t], 2 * kTolerance) << t;
        ++equal;
      }
    }
    EXPECT_GE(equal, 5 * 7 / 2u) << "too few tokens to speak of";

    // Prefixes: a block is there already; of the base's own tokens, but of no variant's.
    const auto again = std::make_shared<Record>(), other = std::make_shared<Record>();
    world.ask("", asked[0].prompt, 3, again);
    world.ask(kTwoLevels, asked[0].prompt, 1, other);
    world.finish();
    EXPECT_EQ(again->end.cached_tokens, kBlockTokens);
    EXPECT_EQ(other->end.cached_tokens, 0);
    EXPECT_NE(other->logprobs[0], plain[0]->logprobs[0]);
    EXPECT_EQ(again->logprobs[0], plain[0]->logprobs[0]);
    EXPECT_EQ(again->tokens[2], plain[0]->tokens[2]);
    EXPECT_EQ(again->logprobs[2], plain[0]->logprobs[2]);
  }
  // Chunks of prompts beside generated rows; memory for all prompts, not for all answers.
  World world = on_cuda(8, 9);
  const auto hard = ask_all(world, asked);
  world.finish();
  EXPECT_GT(world.core().stats().preemptions, 0u);
  for (size_t s = 0; s < asked.size(); ++s) expect_same(*hard[s], *plain[s], asked[s].variant);
}

TEST_F(CudaEngine, GoesOnWhenNeighboursAreCancelledAndVariantsAreReplaced) {
  const std::vector<int32_t> prompt = prompt_of(1, 6);
  World alone = on_cuda(64, 64);
  const auto base = std::make_shared<Record>(), old = std::make_shared<Record>(),
             next = std::make_shared<Record>(), low = std::make_shared<Record>();
  alone.ask("", prompt, 14, base);
  alone.ask(kOneLevel, prompt, 5, old);
  alone.ask(kAnother, prompt, 4, next);
  alone.ask(kLowRank, prompt, 4, low);
  alone.finish();

  World world = on_cuda(64, 64);
  const auto stays = std::make_shared<Record>(), goes = std::make_shared<Record>();
  world.ask("", prompt, 14, stays);
  const RequestHandle handle = world.ask(kOneLevel, prompt, 50, goes);
  // The prompts' step, then as many alike as make a graph and replay it.
  for (int step = 0; step < 5; ++step) world.core().step();
  ASSERT_EQ(goes->tokens.size(), 5u);
  world.core().cancel(handle);
  world.drop(kOneLevel);  // the last that holds it is the step
  // Others in its place: one of its kind, for which the same graph is replayed, and another.
  for (const auto& [variant, want] : {std::pair{kAnother, next}, std::pair{kLowRank, low}}) {
    const auto comes = std::make_shared<Record>();
    world.ask(variant, prompt, 4, comes);
    while (comes->finished == 0) world.core().step();
    expect_same(*comes, *want, variant);
    world.drop(variant);
  }
  world.finish();
  expect_ended(*goes, FinishReason::kCancelled);
  expect_same(*stays, *base, "the base");
  expect_same(*goes, *old, kOneLevel);
  EXPECT_NE(old->logprobs[0], next->logprobs[0]);
}

}  // namespace
}  // namespace deltad
