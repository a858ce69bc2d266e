// What planning costs: plan_step with 256 sequences that run and 4,096 that wait, over 1,000
// variants, and a whole step around a model that computes nothing. Checks that a plan fills the
// step before it reports anything.
//   bench_plan_step [steps]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "engine/engine_core.h"

namespace deltad {
namespace {

constexpr int32_t kRunning = 256, kWaiting = 4096, kVariants = 1000;
constexpr int32_t kBlocks = 16384, kContext = 4096;
constexpr int64_t kVocabulary = 8;

class NoModel final : public ModelRunner {
 public:
  Result<Logits> forward(const Batch& batch, const KvView&,
                         std::span<const VariantWeights* const>) override {
    const auto rows = static_cast<int64_t>(batch.logit_rows.size());
    values_.assign(static_cast<size_t>(rows * kVocabulary), 0.5f);
    Logits logits;
    logits.values = matrix_view(values_.data(), DType::kF32, rows, kVocabulary, kVocabulary);
    logits.vocab.assign(static_cast<size_t>(rows), kVocabulary);
    return logits;
  }
  int32_t max_slots() const override { return 256; }
  void parallel_for(int64_t n, void (*work)(void* context, int64_t i), void* context) override {
    for (int64_t i = 0; i < n; ++i) work(context, i);
  }

 private:
  std::vector<float> values_;
};

struct Times {
  std::vector<double> micros;
  void print(const char* what) {
    std::sort(micros.begin(), micros.end());
    const size_t n = micros.size();
    std::printf("%-10s p50 %7.1f  p90 %7.1f  p99 %7.1f  µs\n", what, micros[n / 2],
                micros[n * 9 / 10], micros[n * 99 / 100]);
  }
};

template <typename Work>
double micros_of(Work&& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
      .count();
}

int run(int steps) {
  NoModel model;
  const KvGeometry geometry{1, kBlocks, 16, 16};
  auto memory = Buffer::cpu(static_cast<size_t>(geometry.bytes()));
  if (!memory.ok()) return 1;
  SchedulerOptions options;
  options.max_running = kRunning;
  options.max_step_rows = kRunning;
  options.step_seconds = 10;  // the rows are the bound
  EngineCore core(model, KvCache(std::move(*memory), geometry, true), options, kContext,
                  Clock::real());
  std::vector<VariantRef> variants;
  for (int v = 0; v < kVariants; ++v) {
    auto variant = std::make_shared<Variant>();
    variant->name = "v" + std::to_string(v);
    variant->digest = "digest of v" + std::to_string(v);
    variant->bytes = size_t{64} << 20;
    variants.push_back(std::move(variant));
  }
  RequestHandle handle = 0;
  uint64_t random = 88172645463325252ull;
  const auto submit = [&] {
    Request request;
    random ^= random << 13, random ^= random >> 7, random ^= random << 17;
    // Half of all requests are for a tenth of the variants.
    const uint64_t pick = random % 2 == 0 ? random / 2 % (kVariants / 10) : random / 2 % kVariants;
    request.variant = variants[pick];
    for (int32_t i = 0; i < 48; ++i)
      request.prompt.push_back(static_cast<int32_t>((random >> 8) + static_cast<uint64_t>(i)) &
                               0xffff);
    request.max_tokens = 64 + static_cast<int32_t>(random % 128);
    request.sampling.temperature = 0;
    request.on_event = [](const TokenEvent&) {};
    core.accept(++handle, std::move(request));
  };
  const auto refill = [&] {
    while (core.stats().running + core.stats().waiting < kRunning + kWaiting) submit();
  };
  refill();
  for (int i = 0; i < 2000 && core.stats().running < kRunning; ++i) core.step(), refill();
  Times plan, step;
  int64_t rows = 0;
  for (int i = 0; i < steps; ++i) {
    rows = 0;
    plan.micros.push_back(micros_of([&] {
      const StepPlan planned = plan_step(core.state());
      rows = planned.generating_rows + planned.prompt_rows;
    }));
    if (rows < kRunning / 2) {
      std::fprintf(stderr, "bench_plan_step: a plan of %lld rows\n", static_cast<long long>(rows));
      return 1;
    }
    step.micros.push_back(micros_of([&] { core.step(); }));
    refill();
  }
  std::printf("%d running, %d waiting, %d variants, %d steps\n", kRunning, kWaiting, kVariants,
              steps);
  plan.print("plan_step");
  step.print("step");
  return 0;
}

}  // namespace
}  // namespace deltad

int main(int argc, char** argv) { return deltad::run(argc > 1 ? std::atoi(argv[1]) : 2000); }
