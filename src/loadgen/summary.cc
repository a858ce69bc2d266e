#include "loadgen/summary.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>

namespace deltad::loadgen {
namespace {

float ms(Duration d) { return static_cast<float>(1e3 * seconds(d)); }

void append(std::vector<float>* to, const std::vector<float>& from) {
  to->insert(to->end(), from.begin(), from.end());
}

}  // namespace

Result<Slo> parse_slo(std::string_view text) {
  const auto wrong = [whole = text](std::string_view part) {
    return invalid_argument(fmt::format(
        "--slo {}: \"{}\": expected ttft:MS, tpot:MS or e2e:MS, separated by commas", whole, part));
  };
  Slo slo;
  for (;;) {
    const size_t comma = text.find(',');
    const std::string_view part = text.substr(0, comma);
    const size_t colon = part.find(':');
    if (colon == std::string_view::npos) return wrong(part);
    const std::string_view name = part.substr(0, colon);
    const std::string number(part.substr(colon + 1));
    char* end = nullptr;
    const double limit = std::strtod(number.c_str(), &end);
    std::optional<double>* field = name == "ttft"   ? &slo.ttft
                                   : name == "tpot" ? &slo.tpot
                                   : name == "e2e"  ? &slo.e2e
                                                    : nullptr;
    if (field == nullptr || field->has_value() || number.empty() || *end != '\0' ||
        !std::isfinite(limit) || limit <= 0) {
      return wrong(part);
    }
    *field = limit;
    if (comma == std::string_view::npos) return slo;
    text.remove_prefix(comma + 1);
  }
}

double percentile(const std::vector<float>& sorted, double p) {
  if (sorted.empty()) return 0;
  const double at = p * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(at);
  if (below + 1 >= sorted.size()) return sorted.back();
  const double part = at - static_cast<double>(below);
  return sorted[below] + part * (static_cast<double>(sorted[below + 1]) - sorted[below]);
}

Distribution distribution(std::vector<float> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  return {static_cast<int64_t>(values.size()),
          sum / static_cast<double>(values.size()),
          percentile(values, 0.5),
          percentile(values, 0.9),
          percentile(values, 0.99),
          values.back()};
}

void Totals::add(const RequestRecord& record, const Slo& slo) {
  ++requests;
  if (record.outcome != Outcome::kOk) {
    ++errors[record.error];
    return;
  }
  ++completed;
  prompt_tokens += record.prompt_tokens;
  completion_tokens += record.completion_tokens;
  const float whole = ms(record.end - record.scheduled);
  e2e.push_back(whole);
  bool within = !slo.e2e || whole <= *slo.e2e;
  if (record.streamed) {
    ttft.push_back(ms(record.first - record.scheduled));
    within = within && (!slo.ttft || ttft.back() <= *slo.ttft);
    if (record.completion_tokens > 1) {
      tpot.push_back(ms(record.end - record.first) /
                     static_cast<float>(record.completion_tokens - 1));
      within = within && (!slo.tpot || tpot.back() <= *slo.tpot);
    }
    append(&itl, record.gaps);
  }
  good += within;
}

void Totals::add(const Totals& other) {
  requests += other.requests;
  completed += other.completed;
  good += other.good;
  prompt_tokens += other.prompt_tokens;
  completion_tokens += other.completion_tokens;
  for (const auto& [error, count] : other.errors) errors[error] += count;
  append(&ttft, other.ttft);
  append(&tpot, other.tpot);
  append(&itl, other.itl);
  append(&e2e, other.e2e);
}

void Summary::add(const RequestRecord& record) {
  models_[record.model].add(record, slo_);
  late_.push_back(ms(record.sent - record.scheduled));
  if (record.outcome == Outcome::kOk) {
    ++completed_;
    completion_tokens_ += record.completion_tokens;
    return;
  }
  details_.emplace(record.error, record.model + ": " + record.detail);
  faults_ += record.outcome != Outcome::kRefused;
}

Totals Summary::total() const {
  Totals total;
  for (const auto& [name, totals] : models_) total.add(totals);
  return total;
}

}  // namespace deltad::loadgen
