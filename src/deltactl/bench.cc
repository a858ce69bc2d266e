// deltactl bench: tokens a second of prefill and generation for the base, for each variant, and for
// a batch in which every row belongs to another variant; what generation costs beside as many rows
// of the base; and the weight traffic as a share of this machine's memory bandwidth, measured in
// the same run. Runs take turns, in generation after every step, so that a change of the machine's
// speed hits all alike; medians are reported, in generation of the steps. Steps the transformer
// itself: no sampling, no scheduling, tokens are made up (what a token is does not change its
// cost).
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>

#include "deltactl/commands.h"
#include "deltactl/console.h"
#include "deltactl/model_session.h"
#include "engine/direct_runner.h"

namespace deltad {
namespace {

struct Options {
  ModelOptions model;
  int64_t prompt = 512, generate = 128, chunk = 256, repeat = 5;
  std::vector<int> batches = {1, 4, 14};
  bool json = false;
};

// One kind of run: a batch of sequences, each of a variant.
struct Run {
  std::vector<std::string> names;    // of the variants, "base" for none; one for a uniform batch
  std::vector<VariantRef> variants;  // [batch]
  int64_t step_bytes = 0;            // weights that one generating step reads
  std::unique_ptr<DirectRunner> runner;
  std::vector<double> prefill, generate;  // tokens a second, one a repetition
  std::vector<double> steps;              // seconds of each generating step of this repetition
  // Generation beside the base with as many rows, minus 1; one a repetition, empty for the base.
  std::vector<double> beside_base;
  bool base() const { return names.size() == 1 && !variants.front(); }
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

int64_t resident_bytes() {
  int64_t pages = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

// What all kernel threads read together from memory that no cache holds: the median of several
// passes over 1 GiB.
Result<double> memory_bandwidth(Backend& backend) {
  constexpr size_t kBytes = size_t{1} << 30;
  constexpr int64_t kPieces = 256;
  constexpr size_t kWords = kBytes / kPieces / sizeof(uint64_t);
  struct Pass {
    uint64_t* data;
    std::array<uint64_t, kPieces> sums;
  };
  ASSIGN_OR_RETURN(const Buffer memory, backend.allocate(kBytes));
  auto pass = std::make_unique<Pass>();
  pass->data = memory.as<uint64_t>();
  const auto fill = [](void* context, int64_t piece) {
    uint64_t* at = static_cast<Pass*>(context)->data + static_cast<size_t>(piece) * kWords;
    for (size_t i = 0; i < kWords; ++i) at[i] = i;
  };
  const auto read = [](void* context, int64_t piece) {
    const uint64_t* at = static_cast<Pass*>(context)->data + static_cast<size_t>(piece) * kWords;
    uint64_t sums[8] = {};
    for (size_t i = 0; i < kWords; i += 8)
      for (size_t j = 0; j < 8; ++j) sums[j] += at[i + j];
    static_cast<Pass*>(context)->sums[static_cast<size_t>(piece)] =
        sums[0] + sums[1] + sums[2] + sums[3] + sums[4] + sums[5] + sums[6] + sums[7];
  };
  backend.ops().parallel_for(kPieces, fill, pass.get());
  std::vector<double> rates;
  for (int i = 0; i < 5; ++i) {
    const TimePoint start = Clock::real().now();
    backend.ops().parallel_for(kPieces, read, pass.get());
    rates.push_back(static_cast<double>(kBytes) / seconds(Clock::real().now() - start));
    const uint64_t expected = static_cast<uint64_t>(kWords) * (kWords - 1) / 2;
    for (uint64_t sum : pass->sums)
      if (sum != expected)
        return internal_error("the memory pass read something else than was written");
  }
  return median(rates);
}

std::vector<Run> plan_runs(const Options& options, const ModelSession& session) {
  std::vector<Run> runs;
  const int64_t base_bytes = static_cast<int64_t>(session.base->backend->weight_bytes());
  const auto add = [&](std::vector<std::string> names, std::vector<VariantRef> variants) {
    Run run{std::move(names), std::move(variants), base_bytes, nullptr, {}, {}, {}, {}};
    std::vector<const Variant*> counted;
    for (const VariantRef& v : run.variants) {
      if (!v || std::find(counted.begin(), counted.end(), v.get()) != counted.end()) continue;
      counted.push_back(v.get());
      run.step_bytes += static_cast<int64_t>(v->bytes);
    }
    runs.push_back(std::move(run));
  };
  for (int b : options.batches)
    add({"base"}, std::vector<VariantRef>(static_cast<size_t>(b), nullptr));
  for (const VariantRef& v : session.variants)
    add({v->name}, std::vector<VariantRef>(static_cast<size_t>(options.batches.front()), v));
  for (int b : options.batches) {
    if (session.variants.size() < 2 || b < 2) continue;
    std::vector<std::string> names;
    std::vector<VariantRef> variants;
    for (size_t i = 0; i < static_cast<size_t>(b); ++i)
      variants.push_back(session.variants[i % session.variants.size()]);
    std::stable_sort(variants.begin(), variants.end(),
                     [](const auto& a, const auto& b2) { return a->name < b2->name; });
    for (const VariantRef& v : variants) names.push_back(v->name);
    add(std::move(names), std::move(variants));
  }
  return runs;
}

int32_t made_up_token(int64_t i, int64_t vocab) {
  return static_cast<int32_t>((i * 7919 + 13) % vocab);
}

Status measure_prefill(const Options& options, const ModelConfig& config, Run* run) {
  const int64_t batch = static_cast<int64_t>(run->variants.size());
  run->runner->reset();
  std::vector<int32_t> ids(static_cast<size_t>(options.prompt));
  for (int64_t i = 0; i < options.prompt; ++i)
    ids[static_cast<size_t>(i)] = made_up_token(i, config.vocab);
  const TimePoint start = Clock::real().now();
  for (int64_t s = 0; s < batch; ++s) {
    for (int64_t at = 0; at < options.prompt; at += options.chunk) {
      const int64_t n = std::min(options.chunk, options.prompt - at);
      const auto logits = run->runner->append(
          static_cast<int>(s),
          std::span(ids).subspan(static_cast<size_t>(at), static_cast<size_t>(n)), false);
      RETURN_IF_ERROR(logits.status());
    }
  }
  run->prefill.push_back(static_cast<double>(batch * options.prompt) /
                         seconds(Clock::real().now() - start));
  return Status();
}

// The i-th step after the prompt.
Status measure_step(const ModelConfig& config, int64_t i, Run* run) {
  const size_t batch = run->variants.size();
  std::vector<int32_t> next(batch);
  for (size_t s = 0; s < batch; ++s)
    next[s] =
        made_up_token(i * static_cast<int64_t>(batch) + static_cast<int64_t>(s), config.vocab);
  const TimePoint start = Clock::real().now();
  RETURN_IF_ERROR(run->runner->step(next).status());
  run->steps.push_back(seconds(Clock::real().now() - start));
  return Status();
}

// One repetition of all runs.
Status measure(const Options& options, const ModelConfig& config, std::vector<Run>* runs,
               const std::function<void()>& done) {
  for (Run& r : *runs) {
    RETURN_IF_ERROR(measure_prefill(options, config, &r));
    done();
  }
  for (int64_t i = 0; i < options.generate; ++i) {
    for (Run& r : *runs) RETURN_IF_ERROR(measure_step(config, i, &r));
    done();
  }
  for (Run& r : *runs) {
    r.generate.push_back(static_cast<double>(r.variants.size()) / median(std::move(r.steps)));
    r.steps.clear();
  }
  for (Run& r : *runs)
    for (const Run& base : *runs)
      if (!r.base() && base.base() && base.variants.size() == r.variants.size())
        r.beside_base.push_back(r.generate.back() / base.generate.back() - 1);
  return Status();
}

size_t different(const std::vector<std::string>& names) {
  return std::set<std::string>(names.begin(), names.end()).size();
}

void print_table(const Options& options, const std::vector<Run>& runs, double bandwidth,
                 int threads, const std::string& backend) {
  fmt::print("{}; memory {:.1f} GB/s; resident {}\n", backend, bandwidth / 1e9,
             human_bytes(resident_bytes()));
  fmt::print("{} prompt and {} generated tokens, {} threads, medians of {}\n\n", options.prompt,
             options.generate, threads, options.repeat);
  fmt::print("{:<24} {:>5} {:>14} {:>14} {:>9} {:>14}\n", "variants", "batch", "prefill tok/s",
             "generate tok/s", "vs base", "weights GB/s");
  for (const Run& run : runs) {
    const double generate = median(run.generate);
    const double rate =
        generate / static_cast<double>(run.variants.size()) * static_cast<double>(run.step_bytes);
    const std::string label =
        run.names.size() == 1 ? run.names[0] : fmt::format("{} different", different(run.names));
    const std::string beside =
        run.base() ? "" : fmt::format("{:+.1f} %", 100 * median(run.beside_base));
    fmt::print("{:<24} {:>5} {:>14.1f} {:>14.1f} {:>9} {:>8.1f} ({:.0f} %)\n", label,
               run.variants.size(), median(run.prefill), generate, beside, rate / 1e9,
               100 * rate / bandwidth);
  }
}

Result<int> run(const Options& options) {
  ASSIGN_OR_RETURN(ModelSession session, open_session(options.model));
  Backend& backend = *session.base->backend;
  const int threads = thread_count(options.model.threads);
  ASSIGN_OR_RETURN(const double bandwidth, memory_bandwidth(backend));
  std::vector<Run> runs = plan_runs(options, session);
  for (Run& r : runs) {
    ASSIGN_OR_RETURN(
        r.runner, DirectRunner::make(session.base->config(), session.base->table, backend,
                                     r.variants, options.prompt + options.generate, options.chunk));
  }
  ProgressBar bar("measuring");
  const int64_t total =
      (options.repeat + 1) * (static_cast<int64_t>(runs.size()) + options.generate);
  int64_t done = 0;
  for (int64_t repeat = -1; repeat < options.repeat; ++repeat) {  // the first one warms up
    RETURN_IF_ERROR(
        measure(options, session.base->config(), &runs, [&] { bar.update(++done, total); }));
    if (repeat >= 0) continue;
    for (Run& r : runs) r.prefill.clear(), r.generate.clear(), r.beside_base.clear();
  }
  if (!options.json) {
    print_table(options, runs, bandwidth, threads, backend.description());
    return 0;
  }
  nlohmann::ordered_json document = {{"memory_bytes_per_s", bandwidth},
                                     {"resident_bytes", resident_bytes()}};
  document["runs"] = nlohmann::ordered_json::array();
  for (const Run& r : runs) {
    const double generate = median(r.generate);
    document["runs"].push_back(
        {{"variants", r.names},
         {"batch", r.variants.size()},
         {"threads", threads},
         {"prefill_tokens_per_s", median(r.prefill)},
         {"generate_tokens_per_s", generate},
         {"generate_beside_base",
          r.base() ? nlohmann::ordered_json() : nlohmann::ordered_json(median(r.beside_base))},
         {"weight_bytes_per_s",
          generate / static_cast<double>(r.variants.size()) * static_cast<double>(r.step_bytes)}});
  }
  print_json(document);
  return 0;
}

}  // namespace

void add_bench(Command& app, int* exit_code) {
  auto options = std::make_shared<Options>();
  Command* command = app.add_subcommand(
      "bench", "Measure tokens a second of the base, of variants and of mixed batches");
  add_model_options(command, &options->model, true);
  command->add_option("--prompt", options->prompt, "Prompt tokens (default 512)")
      ->range(1, 1 << 20);
  command->add_option("--generate", options->generate, "Generated tokens (default 128)")
      ->range(1, 1 << 20);
  command
      ->add_option("--batch", options->batches,
                   "Sequences at once, comma-separated (default 1,4,14)")
      ->delimiter(',')
      ->range(1, 1024);
  command->add_option("--chunk", options->chunk, "Prompt rows of one step (default 256, as deltad)")
      ->range(1, 8192);
  command->add_option("--repeat", options->repeat, "Repetitions (default 5)")->range(1, 1000);
  add_json_option(command, &options->json);
  run_command(command, exit_code, &options->json, [options] { return run(*options); });
}

}  // namespace deltad
