// Summary: the records of a load added up, per model and in total: latencies, throughput, goodput,
// errors. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "loadgen/record.h"

namespace deltad::loadgen {

// Limits in ms; a request is good if it was answered whole within all that are set.
struct Slo {
  std::optional<double> ttft, tpot, e2e;
  bool any() const { return ttft || tpot || e2e; }
};
// "ttft:200,tpot:50,e2e:5000", any of them.
Result<Slo> parse_slo(std::string_view text);

struct Distribution {
  int64_t count = 0;
  double mean = 0, p50 = 0, p90 = 0, p99 = 0, max = 0;
};
// The value below which a share p of them lies, with linear interpolation between neighbours; of
// none: 0. `sorted` is in ascending order.
double percentile(const std::vector<float>& sorted, double p);
Distribution distribution(std::vector<float> values);

// ttft = first token − scheduled; tpot = (end − first token) / (tokens − 1), of answers with more
// than one token; itl = each gap; e2e = end − scheduled. In ms, of whole answers only.
struct Totals {
  int64_t requests = 0, completed = 0, good = 0;
  int64_t prompt_tokens = 0, completion_tokens = 0;
  std::map<std::string, int64_t> errors;  // by RequestRecord::error
  std::vector<float> ttft, tpot, itl, e2e;

  void add(const RequestRecord& record, const Slo& slo);
  void add(const Totals& other);
};

class Summary {
 public:
  explicit Summary(Slo slo) : slo_(slo) {}

  void add(const RequestRecord& record);

  const std::map<std::string, Totals>& models() const { return models_; }
  Totals total() const;
  Distribution lateness() const { return distribution(late_); }  // sent − scheduled, ms
  // Error → the first detail that came with it.
  const std::map<std::string, std::string>& details() const { return details_; }
  // Answers that a sound server does not give: everything but whole answers and refusals.
  int64_t faults() const { return faults_; }
  int64_t requests() const { return static_cast<int64_t>(late_.size()); }
  int64_t completed() const { return completed_; }
  int64_t completion_tokens() const { return completion_tokens_; }
  const Slo& slo() const { return slo_; }

 private:
  const Slo slo_;
  std::map<std::string, Totals> models_;
  std::vector<float> late_;
  std::map<std::string, std::string> details_;
  int64_t faults_ = 0, completed_ = 0, completion_tokens_ = 0;
};

}  // namespace deltad::loadgen
