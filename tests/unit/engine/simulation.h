// An EngineCore in simulated time: a model that computes nothing and whose steps take what a cost
// model says, and requests that arrive by a trace.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "engine/engine_core.h"
#include "tests/unit/engine/fake_model.h"

namespace deltad::testing {

struct Costs {  // seconds
  double fixed = 0.008, generating_row = 0.0001, prompt_row = 0.0002, delta_byte = 0;
};

class TimedModel final : public ModelRunner {
 public:
  TimedModel(FakeClock& clock, const Costs& costs, int32_t slots)
      : clock_(clock), costs_(costs), slots_(slots) {}

  Result<Logits> forward(const Batch& batch, const KvView&,
                         std::span<const VariantWeights* const>) override {
    if (before_step) before_step(batch);
    double took = costs_.fixed + costs_.delta_byte * delta_bytes;
    for (const SequenceSpan& span : batch.spans) {
      const int32_t rows = span.end_row - span.first_row;
      took += rows * (rows == 1 ? costs_.generating_row : costs_.prompt_row);
    }
    longest = std::max(longest, took);
    clock_.advance(took);
    const auto rows = static_cast<int64_t>(batch.logit_rows.size());
    values_.assign(static_cast<size_t>(rows * 4), 0);
    Logits logits;
    logits.values = matrix_view(values_.data(), DType::kF32, rows, 4, 4);
    logits.vocab.assign(static_cast<size_t>(rows), 4);
    return logits;
  }
  int32_t max_slots() const override { return slots_; }
  void parallel_for(int64_t n, void (*work)(void* context, int64_t i), void* context) override {
    for (int64_t i = 0; i < n; ++i) work(context, i);
  }

  std::function<void(const Batch&)> before_step;
  double delta_bytes = 0;  // of the step to come
  double longest = 0;

 private:
  FakeClock& clock_;
  const Costs costs_;
  const int32_t slots_;
  std::vector<float> values_;
};

struct Arrival {
  double at = 0;  // seconds from the start
  size_t tenant = 0;
  int32_t prompt = 0, output = 0;
  int32_t priority = 0;
};

// Poisson arrivals of one tenant.
inline void add_poisson(std::vector<Arrival>& trace, size_t tenant, double rate, double end,
                        std::pair<int, int> prompt, std::pair<int, int> output, uint32_t seed) {
  std::mt19937 random(seed);
  std::exponential_distribution<double> gap(rate);
  std::uniform_int_distribution<int32_t> prompts(prompt.first, prompt.second);
  std::uniform_int_distribution<int32_t> outputs(output.first, output.second);
  for (double at = gap(random); at < end; at += gap(random))
    trace.push_back({at, tenant, prompts(random), outputs(random), 0});
}

class Simulation {
 public:
  Simulation(const SchedulerOptions& options, const Costs& costs, int32_t blocks,
             std::vector<VariantRef> tenants, int32_t slots = 64)
      : tenants_(std::move(tenants)),
        model(clock, costs, slots),
        core(model, FakeModel::make_kv(blocks, true), options, blocks * 16, clock),
        ttft(tenants_.size()) {}

  // Until the last request is done, or `end` seconds.
  void run(std::vector<Arrival> trace, double end = 1e9) {
    std::sort(trace.begin(), trace.end(),
              [](const Arrival& a, const Arrival& b) { return a.at < b.at; });
    const TimePoint start = clock.now();
    const auto elapsed = [&] { return seconds(clock.now() - start); };
    size_t next = 0;
    while ((next < trace.size() || !core.idle()) && elapsed() < end) {
      if (core.idle() && trace[next].at > elapsed()) clock.advance(trace[next].at - elapsed());
      for (; next < trace.size() && trace[next].at <= elapsed() + 1e-9; ++next)
        submit(trace[next], start);
      if (!core.idle()) core.step();
      if (after_step) after_step();
    }
  }

  static double percentile(std::vector<double> values, double p) {
    if (values.empty()) return 0;
    std::sort(values.begin(), values.end());
    return values[static_cast<size_t>(p * static_cast<double>(values.size() - 1))];
  }

 private:
  void submit(const Arrival& arrival, TimePoint start) {
    Request request;
    ++last_handle_;
    for (int32_t i = 0; i < arrival.prompt; ++i)  // no two prompts begin alike
      request.prompt.push_back(static_cast<int32_t>(last_handle_) * 1000 + i);
    request.max_tokens = arrival.output;
    request.sampling.temperature = 0;
    request.variant = tenants_[arrival.tenant];
    request.priority = arrival.priority;
    const double at = arrival.at;
    request.on_event = [this, at, start, tenant = arrival.tenant,
                        first = true](const TokenEvent& event) mutable {
      const double now = seconds(clock.now() - start);
      if (event.kind == TokenEvent::Kind::kToken && first) ttft[tenant].push_back(now - at);
      first = false;
      if (event.kind == TokenEvent::Kind::kFinished) ++finished;
    };
    core.accept(last_handle_, std::move(request));
    ++submitted;
  }

  const std::vector<VariantRef> tenants_;
  RequestHandle last_handle_ = 0;

 public:
  FakeClock clock;
  TimedModel model;
  EngineCore core;
  std::function<void()> after_step;
  std::vector<std::vector<double>> ttft;  // by tenant, in seconds
  int64_t submitted = 0, finished = 0;
};

}  // namespace deltad::testing
