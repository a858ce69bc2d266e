#include "bench/serving/cuda/serve.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <utility>

#include "base/clock.h"
#include "base/mutex.h"
#include "engine/engine.h"

namespace deltad::bench {
namespace {

// One sequence's tokens and when each came.
struct Answer {
  std::vector<int32_t> tokens;
  std::vector<TimePoint> times;
};

struct Run {
  TimePoint submitted;
  std::vector<Answer> answers;
};

// Waits for the answers of requests that are submitted together.
class Requests {
 public:
  explicit Requests(size_t count) : answers_(count), open_(count) {}

  std::function<void(const TokenEvent&)> sink(size_t i) {
    return [this, i](const TokenEvent& event) {
      const TimePoint now = Clock::real().now();
      MutexLock lock(mutex_);
      if (event.kind == TokenEvent::Kind::kToken) {
        answers_[i].tokens.push_back(event.token);
        answers_[i].times.push_back(now);
      } else if (event.kind == TokenEvent::Kind::kFinished) {
        if (event.reason != FinishReason::kLength && failed_.ok())
          failed_ = event.status.ok()
                        ? internal_error(fmt::format("a request ended by {}",
                                                     finish_reason_name(event.reason)))
                        : event.status;
        if (--open_ == 0) done_.notify_all();
      }
    };
  }
  Result<std::vector<Answer>> wait() {
    MutexLock lock(mutex_);
    while (open_ > 0) done_.wait(mutex_);
    RETURN_IF_ERROR(failed_);
    return std::move(answers_);
  }

 private:
  Mutex mutex_;
  CondVar done_;
  std::vector<Answer> answers_ GUARDED_BY(mutex_);
  size_t open_ GUARDED_BY(mutex_);
  Status failed_ GUARDED_BY(mutex_);
};

struct Sequence {
  size_t number;  // its prompt follows from it
  VariantRef variant;
};

Result<Run> ask(Engine& engine, const SyntheticModel& model, const std::vector<Sequence>& sequences,
                int32_t prompt, int32_t tokens) {
  Requests requests(sequences.size());
  Run run;
  run.submitted = Clock::real().now();
  for (size_t s = 0; s < sequences.size(); ++s) {
    Request request;
    request.id = fmt::format("{}", s);
    request.variant = sequences[s].variant;
    for (size_t i = 0; i < static_cast<size_t>(prompt); ++i)
      request.prompt.push_back(static_cast<int32_t>((7919 * sequences[s].number + 104729 * i + 13) %
                                                    static_cast<size_t>(model.config.vocab)));
    request.sampling.temperature = 0;
    request.max_tokens = tokens;
    request.received = run.submitted;
    request.on_event = requests.sink(s);
    const auto handle = engine.submit(std::move(request));
    // Those that are under way write into `requests`: they must end first.
    if (!handle.ok()) engine.shutdown(Clock::real().now());
    RETURN_IF_ERROR(handle.status());
  }
  ASSIGN_OR_RETURN(run.answers, requests.wait());
  return run;
}

struct Speed {
  double prompt = 0, generate = 0;  // tokens a second, of all sequences together
};

// Prompts: until the last sequence has its first token. Generation: while all of them generate.
Result<Speed> speed_of(const Run& run, int32_t prompt) {
  TimePoint all_run = run.submitted, first_ended = TimePoint::max();
  for (const Answer& a : run.answers) {
    all_run = std::max(all_run, a.times.front());
    first_ended = std::min(first_ended, a.times.back());
  }
  int64_t generated = 0;
  for (const Answer& a : run.answers)
    generated += std::count_if(a.times.begin(), a.times.end(),
                               [&](TimePoint t) { return t > all_run && t <= first_ended; });
  if (generated < static_cast<int64_t>(run.answers.size()))
    return internal_error("the sequences did not generate together: ask for more tokens");
  const auto rows = static_cast<double>(run.answers.size());
  return Speed{rows * prompt / seconds(all_run - run.submitted),
               static_cast<double>(generated) / seconds(first_ended - all_run)};
}

struct Load {
  const char* what;
  int rows, variants;  // rows in turn of so many variants; 0: of the base
  int32_t prompt, tokens;
};

}  // namespace

Status bench_serving(const SyntheticModel& model, bool small) {
  const int all = static_cast<int>(model.variants.size());
  const std::vector<Load> loads =
      small ? std::vector<Load>{{"base", 1, 0, 4, 4}, {"all variants", all, all, 4, 8}}
            : std::vector<Load>{
                  {"base", 1, 0, 512, 128},           {"base", 14, 0, 256, 128},
                  {"base", 64, 0, 128, 192},          {"one variant", 1, 1, 512, 128},
                  {"one variant", 14, 1, 256, 128},   {"all variants", all, all, 256, 128},
                  {"all variants", 56, all, 128, 192}};
  EngineOptions options;
  options.kv_bytes = small ? 4 << 20 : int64_t{4} << 30;
  options.prefix_cache = false;  // every prompt is computed
  options.step_seconds = 10;     // prompts first, so that all generate together
  ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine,
                   Engine::make(model.config, model.table, *model.backend, options));
  std::printf(
      "| serving | rows | prompt tokens | prompt tokens/s | generated tokens/s | ms a token | "
      "weights GB/s | time / base's |\n|---|---|---|---|---|---|---|---|\n");
  std::map<int, double> base_rate;  // by rows
  for (const Load& load : loads) {
    std::vector<Sequence> rows;
    for (size_t s = 0; s < static_cast<size_t>(load.rows); ++s)
      rows.push_back({s, load.variants == 0
                             ? nullptr
                             : model.variants[s % static_cast<size_t>(load.variants)]});
    double bytes = static_cast<double>(model.backend->weight_bytes());
    for (int v = 0; v < load.variants; ++v)
      bytes += static_cast<double>(model.variants[static_cast<size_t>(v)]->bytes);
    // Once for what is found out or made at the first time.
    RETURN_IF_ERROR(ask(*engine, model, rows, load.prompt, std::min(load.tokens, 16)).status());
    ASSIGN_OR_RETURN(const Run run, ask(*engine, model, rows, load.prompt, load.tokens));
    ASSIGN_OR_RETURN(const Speed speed, speed_of(run, load.prompt));
    // The last sequence beside the others, against alone.
    if (load.rows > 1) {
      ASSIGN_OR_RETURN(const Run alone, ask(*engine, model, {rows.back()}, load.prompt, 8));
      const std::vector<int32_t>&one = alone.answers[0].tokens, &beside = run.answers.back().tokens;
      if (!std::equal(one.begin(), one.end(), beside.begin(), beside.begin() + 8))
        return internal_error(fmt::format("{}, {} rows: the last gets other tokens than alone",
                                          load.what, load.rows));
    }
    if (load.variants == 0) base_rate[load.rows] = speed.generate;
    const auto base = base_rate.find(load.rows);
    std::printf("| %s | %d | %d | %.0f | %.1f | %.2f | %.0f | %s |\n", load.what, load.rows,
                load.prompt, speed.prompt, speed.generate, 1e3 * load.rows / speed.generate,
                bytes * speed.generate / load.rows / 1e9,
                base == base_rate.end() || load.variants == 0
                    ? ""
                    : fmt::format("{:.2f}", base->second / speed.generate).c_str());
    std::fflush(stdout);
  }
  engine->shutdown(Clock::real().now());
  return model.backend->health();
}

}  // namespace deltad::bench
