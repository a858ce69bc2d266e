// Workload: which requests a load consists of, one after the other: made up from distributions, or
// replayed from a trace. Says nothing of how they are sent. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "loadgen/choice.h"

namespace deltad::loadgen {

struct PlannedRequest {
  double at = 0;  // seconds after the start; 0 where answers set the pace
  std::string model;
  std::optional<std::string> prompt;  // as it is; otherwise one of prompt_tokens is made up
  int64_t prompt_tokens = 0;
  int64_t max_tokens = 0;
};

class Workload {
 public:
  virtual ~Workload() = default;
  virtual std::optional<PlannedRequest> next() = 0;  // none: the load has ended
};

struct Range {
  int64_t low = 0, high = 0;  // both included
};
// "128" or "64:256", each at least 1. what: whose value it is, for the error.
Result<Range> parse_range(const std::string& what, std::string_view text);

struct SyntheticOptions {
  std::vector<std::string> models;  // the most popular one first
  double zipf = 1;
  Range prompt_tokens, max_tokens;
  double rate = 0;       // requests a second; 0: `at` stays 0
  double shape = 1;      // of the gaps, see Arrivals
  int64_t requests = 0;  // 0: no end
  uint64_t seed = 0;
};

class SyntheticWorkload final : public Workload {
 public:
  explicit SyntheticWorkload(SyntheticOptions options);
  std::optional<PlannedRequest> next() override;

 private:
  const SyntheticOptions options_;
  const Zipf zipf_;
  std::mt19937_64 models_, lengths_;
  std::optional<Arrivals> arrivals_;
  int64_t made_ = 0;
};

class TraceWorkload final : public Workload {
 public:
  // requests: at most so many of them, 0 all.
  TraceWorkload(std::vector<PlannedRequest> trace, int64_t requests);
  std::optional<PlannedRequest> next() override;

 private:
  std::vector<PlannedRequest> trace_;
  size_t next_ = 0;
};

// A trace, one JSON object a line: {"at": seconds, "model": …, "max_tokens": …} with
// "prompt_tokens" (how many to make up) or "prompt" (text). "at" never decreases; other keys are
// passed over, as are empty lines. Errors name `name` and the line.
Result<std::vector<PlannedRequest>> parse_trace(const std::string& name, std::string_view text);

}  // namespace deltad::loadgen
