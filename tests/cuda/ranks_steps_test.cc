// Steps of generated rows on several emulated GPUs: one graph of all of them where their lists have
// come together before, with the bits that the launches one by one give.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "backend/cuda/cuda_ops.h"
#include "tests/cuda/ranks_world.h"

namespace deltad::testing {
namespace {

class RanksSteps : public RanksTest {
 protected:
  using Values = std::vector<float>;

  static int64_t replays(const BaseModel& base, int rank) {
    return static_cast<const CudaOps&>(base.parallel->backend(rank).ops()).replayed_steps();
  }
  // `rows` sequences of each variant (null: the base), a generated row each, the first of it.
  static Values step(const BaseModel& base, Stepper& stepper,
                     const std::vector<VariantRef>& variants, int32_t rows, bool sampled) {
    Batch batch;
    std::vector<const VariantWeights*> slots;
    for (size_t v = 0; v < variants.size(); ++v) {
      const auto first = static_cast<int32_t>(batch.ids.size());
      if (variants[v]) slots.push_back(variants[v]->weights.get());
      batch.groups.push_back(
          {first, first + rows, variants[v] ? static_cast<int32_t>(slots.size()) - 1 : kBaseSlot});
      for (int32_t r = first; r < first + rows; ++r) {
        batch.ids.push_back((7 + 31 * r) % 200 % static_cast<int32_t>(base.config().vocab));
        batch.spans.push_back({r, r + 1, 0, stepper.blocks_of(r), true});
        batch.logit_rows.push_back(r);
      }
    }
    Values out;
    if (sampled) {
      std::vector<SampleRequest> wanted(batch.logit_rows.size());
      for (SampleRequest& request : wanted) {
        request.seed = 3;
        request.top = 4;
      }
      const auto outcomes = stepper.forward_sampled(batch, slots, wanted);
      EXPECT_TRUE(outcomes.ok()) << outcomes.status().message();
      if (!outcomes.ok()) return out;
      for (const SampleOutcome& o : *outcomes) {
        out.insert(out.end(), {static_cast<float>(o.token), o.logprob});
        for (const auto& top : o.top) out.push_back(top.logprob);
      }
      return out;
    }
    const auto logits = stepper.forward(batch, slots);
    EXPECT_TRUE(logits.ok()) << logits.status().message();
    if (!logits.ok()) return out;
    for (size_t r = 0; r < logits->vocab.size(); ++r) {
      const float* row = logits->values.row<float>(static_cast<int64_t>(r));
      out.insert(out.end(), row, row + logits->vocab[r]);
    }
    return out;
  }
  // The same step until it is a graph, and on: the same bits.
  static void run(const BaseModel& base, const std::vector<VariantRef>& variants, int32_t rows) {
    const int ranks = base.parallel->ranks();
    Stepper stepper(base, static_cast<int>(variants.size()) * rows);
    for (const bool sampled : {false, true}) {
      const Values first = step(base, stepper, variants, rows, sampled);
      ASSERT_FALSE(first.empty());
      const int64_t before = replays(base, 0);
      // Scratch has found its size after the first. Steps take the two pieces of memory for parts
      // in turn, so that there are two lists, and each is a graph when it comes the second time.
      size_t launched = 0;
      for (int i = 0; i < 6; ++i) {
        EXPECT_EQ(step(base, stepper, variants, rows, sampled), first) << i;
        const size_t now = emulated_gpu::launches().size();
        if (i == 3) launched = now;
        if (i > 3) {
          EXPECT_EQ(now, launched + (sampled ? static_cast<size_t>(i - 3) : 0)) << i;
        }
      }
      EXPECT_GE(replays(base, 0) - before, 4);
      for (int r = 1; r < ranks; ++r) EXPECT_EQ(replays(base, r), replays(base, 0));
    }
    EXPECT_EQ(emulated_gpu::report(), "");
  }
};

TEST_F(RanksSteps, ThatAreAlikeAreGraphsOfTheSameBits) {
  ModelConfig config = even_model();
  config.layers = 1;
  const auto paths = write_model(config);
  for (const int ranks : {2, 4, 8}) {
    SCOPED_TRACE(::testing::Message() << ranks << " GPUs");
    const auto base = on_gpus(folder_.path(), ranks);
    ASSERT_NE(base, nullptr);
    run(*base, load_all(*base, ranks == 2 ? paths : std::vector<std::string>{"", paths[1]}), 1);
  }
}

TEST_F(RanksSteps, AreGraphsInAnyOrderOfWork) {
  ModelConfig config = even_model();
  config.layers = 1;
  const auto paths = write_model(config);
  for (const auto& order :
       {options(emulated_gpu::Order::kEager), options(emulated_gpu::Order::kRandom, 1),
        options(emulated_gpu::Order::kRandom, 2)}) {
    emulated_gpu::reset(order);
    const auto base = on_gpus(folder_.path(), 3);
    ASSERT_NE(base, nullptr);
    run(*base, load_all(*base, {"", paths[3]}), 2);
  }
}

// Sums whose rows the ranks divide have two turns.
TEST_F(RanksSteps, OfLargeSumsAreGraphsToo) {
  ModelConfig config = even_model();
  config.hidden = 2048;
  config.heads = config.kv_heads = 3;
  config.intermediate = 24;
  config.layers = 1;
  config.vocab = 64;
  write_random_model(folder_, config, 1);
  const auto base = on_gpus(folder_.path(), 3);
  ASSERT_NE(base, nullptr);
  run(*base, {nullptr}, 40);
}

// A call that fails while a graph is made ends nothing: the step runs as it did before, and so do
// all when that has come too often.
TEST_F(RanksSteps, OfWhichNoGraphCanBeMadeGoOnWithout) {
  ModelConfig config = even_model();
  config.layers = 1;
  const auto paths = write_model(config);
  const auto base = on_gpus(folder_.path(), 2);
  ASSERT_NE(base, nullptr);
  const auto variants = load_all(*base, {paths[1]});
  Stepper stepper(*base, 5);
  int32_t rows = 0;
  const auto count = [](const char* name, int device) {
    size_t calls = 0;
    for (const auto& call : emulated_gpu::calls())
      calls += call.name == name && call.device == device;
    return calls;
  };
  for (const auto& [name, device] : {std::pair{"cudaGraphInstantiate", 0},
                                     std::pair{"cudaStreamBeginCapture", 0},
                                     {"cudaEventRecordWithFlags", 1},
                                     {"cudaLaunchKernelExC", 1}}) {
    SCOPED_TRACE(name);
    const int64_t before = replays(*base, 1);
    const Values first = step(*base, stepper, variants, ++rows, false);
    for (int i = 0; i < 6; ++i) {
      if (i == 2)
        emulated_gpu::inject({.call = count(name, device),
                              .error = cudaErrorMemoryAllocation,
                              .device = device,
                              .name = name});
      EXPECT_EQ(step(*base, stepper, variants, rows, false), first) << i;
    }
    ASSERT_TRUE(base->parallel->health().ok()) << base->parallel->health().message();
    // Of the two lists one has become a graph.
    EXPECT_GE(replays(*base, 1) - before, 2);
    EXPECT_LE(replays(*base, 1) - before, 3);
  }
  const int64_t before = replays(*base, 1);
  const Values first = step(*base, stepper, variants, ++rows, false);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(step(*base, stepper, variants, rows, false), first) << i;
  EXPECT_EQ(replays(*base, 1), before);
}

// Graphs hold no variant's address.
TEST_F(RanksSteps, OfVariantsThatAreReplacedStayTheSameGraph) {
  const auto paths = write_model(even_model());
  write_random_delta(folder_.file("other"), even_model(), {2, true, false, 0}, 9);
  const auto base = on_gpus(folder_.path(), 2);
  ASSERT_NE(base, nullptr);
  Stepper stepper(*base, 1);
  auto variants = load_all(*base, {paths[1]});
  Values old;
  for (int i = 0; i < 4; ++i) old = step(*base, stepper, variants, 1, true);
  const int64_t before = replays(*base, 1);
  EXPECT_GT(before, 0);
  variants = {};
  variants = load_all(*base, {folder_.file("other")});
  const Values other = step(*base, stepper, variants, 1, true);
  EXPECT_EQ(replays(*base, 1), before + 1);
  EXPECT_NE(other, old);
  Stepper fresh(*base, 1);
  EXPECT_EQ(step(*base, fresh, variants, 1, true), other);
  EXPECT_EQ(replays(*base, 1), before + 1);
}

}  // namespace
}  // namespace deltad::testing
