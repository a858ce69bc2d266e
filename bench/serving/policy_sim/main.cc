// policy_sim: hit ratios of eviction policies over synthetic traces, all under the rules of the
// real DeltaCache (every miss loads, what is in use stays). Prints a Markdown table, and how far
// ours is from the best of the others. Seconds for the default.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>

#include "bench/serving/policy_sim/policies.h"
#include "bench/serving/policy_sim/simulate.h"
#include "router/delta_cache.h"

namespace {

using namespace deltad;
using namespace deltad::policy_sim;

struct Policy {
  std::string name;
  std::function<std::unique_ptr<EvictionPolicy>()> make;
};

struct Settings {
  int requests = 100'000;
  double half_life = CacheOptions().half_life_seconds;
  bool per_trace = false;
};

// A usual setting: 14 variants, room for 8, six of them carry most of the traffic.
void print_top_six(const Settings& settings) {
  TraceOptions trace;
  trace.requests = settings.requests;
  trace.top = 6;
  SimOptions sim;
  sim.budget_share = 8.8 / 14;  // eight of the largest
  sim.warm_up_seconds = 60;
  const SimResult result =
      simulate(make_trace(trace), trace.variants, sim, settings.half_life, nullptr);
  int reloads = 0;
  for (int i = 0; i < 6; ++i) reloads += result.loads_of[static_cast<size_t>(i)];
  fmt::print(
      "14 variants, room for 8, six with {:.0f} % of the requests: after the first minute these "
      "six "
      "were loaded {} times in {} requests ({} loads in all)\n",
      100 * trace.top_share, reloads, settings.requests, result.loads);
}

const std::vector<Policy>& others() {
  static const std::vector<Policy> policies = {
      {"LRU", [] { return std::make_unique<Lru>(); }},
      {"LFU-DA", [] { return std::make_unique<LfuAgeing>(); }},
      {"LRFU", [] { return std::make_unique<Lrfu>(); }},
      {"GDSF", [] { return std::make_unique<Gdsf>(); }},
  };
  return policies;
}

// Hit ratios in percent, of one trace or summed over several: ours, then the others'.
struct Hits {
  std::vector<double> percent = std::vector<double>(others().size() + 1);
  int traces = 0;

  double over_best() const {
    return percent[0] - *std::max_element(percent.begin() + 1, percent.end());
  }
  void add(const Hits& other) {
    for (size_t i = 0; i < percent.size(); ++i) percent[i] += other.percent[i];
    traces += other.traces;
  }
  std::string columns() const {
    std::string out;
    for (const double p : percent) out += fmt::format(" {:.1f} |", p / traces);
    return out;
  }
};

Hits run_all(const std::vector<TraceRequest>& trace, int variants, double budget,
             double half_life) {
  SimOptions sim;
  sim.budget_share = budget;
  Hits out;
  out.traces = 1;
  out.percent[0] = 100 * simulate(trace, variants, sim, half_life, nullptr).hit_ratio;
  for (size_t i = 0; i < others().size(); ++i)
    out.percent[i + 1] =
        100 * simulate(trace, variants, sim, half_life, others()[i].make()).hit_ratio;
  return out;
}

void compare(const Settings& settings) {
  fmt::print("half-life {} s, traces of {} requests, hit ratios in percent\n\n| traces | ours |",
             settings.half_life, settings.requests);
  for (const Policy& policy : others()) fmt::print(" {} |", policy.name);
  fmt::print(" ours − best: mean | worst |\n|---|---|---|---|---|---|---|---|\n");
  Hits all;
  double gap_of_all = 0, worst_of_all = 1e9;
  for (const int variants : {14, 100, 1000}) {
    for (const Pattern pattern : {Pattern::kSteady, Pattern::kShifting, Pattern::kScan}) {
      Hits group;
      double gap = 0, worst = 1e9;
      for (const double exponent : {0.6, 0.8, 1.0, 1.2, 1.4}) {
        TraceOptions options;
        options.variants = variants;
        options.exponent = exponent;
        options.pattern = pattern;
        options.requests = settings.requests;
        const std::vector<TraceRequest> trace = make_trace(options);
        for (const double budget : {0.1, 0.3, 0.6}) {
          const Hits hits = run_all(trace, variants, budget, settings.half_life);
          if (settings.per_trace)
            fmt::print("| {} {}, exponent {}, budget {:.0f} % |{} {:+.1f} | |\n", variants,
                       pattern_name(pattern), exponent, 100 * budget, hits.columns(),
                       hits.over_best());
          group.add(hits);
          gap += hits.over_best();
          worst = std::min(worst, hits.over_best());
        }
      }
      fmt::print("| {} variants, {} |{} {:+.2f} | {:+.2f} |\n", variants, pattern_name(pattern),
                 group.columns(), gap / group.traces, worst);
      all.add(group);
      gap_of_all += gap;
      worst_of_all = std::min(worst_of_all, worst);
    }
  }
  fmt::print("| all {} |{} {:+.2f} | {:+.2f} |\n\n", all.traces, all.columns(),
             gap_of_all / all.traces, worst_of_all);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Compares eviction policies over synthetic traces.", "policy_sim");
  Settings settings;
  std::vector<double> half_lives;
  app.add_option("--requests", settings.requests, "Requests of each trace")
      ->check(CLI::Range(1000, 100'000'000));
  app.add_option("--half-life", half_lives, "Seconds; several are compared (default: deltad's)");
  app.add_flag("--per-trace", settings.per_trace, "A row for each trace");
  CLI11_PARSE(app, argc, argv);
  if (half_lives.empty()) half_lives.push_back(settings.half_life);
  for (const double half_life : half_lives) {
    settings.half_life = half_life;
    compare(settings);
    print_top_six(settings);
  }
  return 0;
}
