#include "deltactl/bench_serve_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace deltad {
namespace {

using Json = nlohmann::ordered_json;
using loadgen::Distribution;
using loadgen::Summary;
using loadgen::Totals;

double per_second(int64_t count, double elapsed) {
  return elapsed > 0 ? static_cast<double>(count) / elapsed : 0;
}

double share(int64_t part, int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

Json distribution_json(const std::vector<float>& values) {
  const Distribution d = loadgen::distribution(values);
  return {{"count", d.count}, {"mean", d.mean}, {"p50", d.p50},
          {"p90", d.p90},     {"p99", d.p99},   {"max", d.max}};
}

Json totals_json(const Totals& t, const Summary& summary, double elapsed) {
  Json json = {{"requests", t.requests},
               {"completed", t.completed},
               {"errors", Json::object()},
               {"requests_per_s", per_second(t.completed, elapsed)},
               {"prompt_tokens", t.prompt_tokens},
               {"output_tokens", t.completion_tokens},
               {"output_tokens_per_s", per_second(t.completion_tokens, elapsed)},
               {"total_tokens_per_s", per_second(t.prompt_tokens + t.completion_tokens, elapsed)}};
  for (const auto& [error, count] : t.errors) json["errors"][error] = count;
  if (summary.slo().any()) {
    json["goodput"] = {{"share", share(t.good, t.requests)},
                       {"requests_per_s", per_second(t.good, elapsed)}};
  }
  json["ttft_ms"] = distribution_json(t.ttft);
  json["tpot_ms"] = distribution_json(t.tpot);
  json["itl_ms"] = distribution_json(t.itl);
  json["e2e_ms"] = distribution_json(t.e2e);
  return json;
}

std::string slo_text(const loadgen::Slo& slo) {
  std::string text;
  const auto part = [&text](const char* name, const std::optional<double>& limit) {
    if (limit) text += fmt::format("{}{} {} ms", text.empty() ? "" : ", ", name, *limit);
  };
  part("TTFT", slo.ttft);
  part("TPOT", slo.tpot);
  part("end-to-end", slo.e2e);
  return text;
}

void print_latency(const char* name, const std::vector<float>& values) {
  if (values.empty()) return;
  const Distribution d = loadgen::distribution(values);
  fmt::print("{:<12} {:>10.2f} {:>10.2f} {:>10.2f} {:>10.2f} {:>10.2f}\n", name, d.mean, d.p50,
             d.p90, d.p99, d.max);
}

void print_models(const Summary& summary, bool streamed, double elapsed) {
  size_t width = 5;
  for (const auto& [name, totals] : summary.models()) width = std::max(width, name.size());
  width = std::min<size_t>(width, 40);
  const bool goodput = summary.slo().any();
  fmt::print("\n{:<{}} {:>8} {:>7} {:>9} {:>21} {:>21}{}\n", "model", width, "requests", "errors",
             "tok/s", streamed ? "TTFT ms p50/p99" : "", "e2e ms p50/p99",
             goodput ? "    good" : "");
  for (const auto& [name, t] : summary.models()) {
    const Distribution first = loadgen::distribution(t.ttft), whole = loadgen::distribution(t.e2e);
    fmt::print("{:<{}} {:>8} {:>7} {:>9.1f} {:>21} {:>21}{}\n", name, width, t.requests,
               t.requests - t.completed, per_second(t.completion_tokens, elapsed),
               streamed ? fmt::format("{:.1f} / {:.1f}", first.p50, first.p99) : "",
               fmt::format("{:.1f} / {:.1f}", whole.p50, whole.p99),
               goodput ? fmt::format("{:>6.1f} %", 100 * share(t.good, t.requests)) : "");
  }
}

}  // namespace

void print_serve_table(const ServeRun& run, const Summary& summary) {
  const Totals total = summary.total();
  const double elapsed = run.state.elapsed;
  fmt::print("{} /v1/{}{}; {}; seed {}\n", run.url, run.endpoint, run.streamed ? ", streamed" : "",
             run.pace, run.seed);
  fmt::print("{} requests in {:.1f} s, {} answered, {} not{}\n", total.requests, elapsed,
             total.completed, total.requests - total.completed,
             run.state.stopped
                 ? fmt::format("; stopped, {} under way left out", run.state.in_flight)
                 : "");
  for (const auto& [error, count] : total.errors) {
    const auto detail = summary.details().find(error);
    fmt::print("  {} × {}: {}\n", count, error, detail->second);
  }
  fmt::print("{:.2f} requests/s; {:.1f} output tokens/s, {:.1f} with prompts\n",
             per_second(total.completed, elapsed), per_second(total.completion_tokens, elapsed),
             per_second(total.prompt_tokens + total.completion_tokens, elapsed));
  if (summary.slo().any()) {
    fmt::print("goodput {:.1f} %, {:.2f} requests/s ({})\n",
               100 * share(total.good, total.requests), per_second(total.good, elapsed),
               slo_text(summary.slo()));
  }
  fmt::print("\n{:<12} {:>10} {:>10} {:>10} {:>10} {:>10}\n", "ms", "mean", "p50", "p90", "p99",
             "max");
  print_latency("TTFT", total.ttft);
  print_latency("TPOT", total.tpot);
  print_latency("ITL", total.itl);
  print_latency("end to end", total.e2e);
  print_models(summary, run.streamed, elapsed);
  const Distribution late = summary.lateness();
  fmt::print("\nthe generator itself: {:.1f} % of a core, at most {} requests under way",
             elapsed > 0 ? 100 * run.state.cpu_seconds / elapsed : 0, run.state.most_in_flight);
  if (run.open_loop) {
    fmt::print(", late by {:.2f} ms (p50), {:.2f} (p99), {:.2f} (max)", late.p50, late.p99,
               late.max);
  }
  fmt::print("\n");
}

Json serve_json(const ServeRun& run, const Summary& summary) {
  const Distribution late = summary.lateness();
  Json json = {{"url", run.url},
               {"endpoint", run.endpoint},
               {"stream", run.streamed},
               {"load", run.pace},
               {"seed", run.seed},
               {"elapsed_s", run.state.elapsed},
               {"stopped", run.state.stopped},
               {"faults", summary.faults()}};
  json["generator"] = {
      {"cpu_share", run.state.elapsed > 0 ? run.state.cpu_seconds / run.state.elapsed : 0},
      {"most_in_flight", run.state.most_in_flight}};
  if (run.open_loop) {
    json["generator"]["late_ms"] = {{"p50", late.p50}, {"p99", late.p99}, {"max", late.max}};
  }
  if (summary.slo().any()) {
    Json slo = Json::object();
    if (summary.slo().ttft) slo["ttft_ms"] = *summary.slo().ttft;
    if (summary.slo().tpot) slo["tpot_ms"] = *summary.slo().tpot;
    if (summary.slo().e2e) slo["e2e_ms"] = *summary.slo().e2e;
    json["slo"] = std::move(slo);
  }
  json["error_details"] = Json::object();
  for (const auto& [error, detail] : summary.details()) json["error_details"][error] = detail;
  json["total"] = totals_json(summary.total(), summary, run.state.elapsed);
  json["models"] = Json::object();
  for (const auto& [name, totals] : summary.models()) {
    json["models"][name] = totals_json(totals, summary, run.state.elapsed);
  }
  return json;
}

}  // namespace deltad
