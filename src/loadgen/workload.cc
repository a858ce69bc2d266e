#include "loadgen/workload.h"

#include <fmt/core.h>

#include <charconv>
#include <utility>

#include "text/json_reader.h"

namespace deltad::loadgen {
namespace {

// A sane bound on token counts, so that sums and generated prompts stay small.
constexpr int64_t kMostTokens = int64_t{1} << 24;
constexpr double kLatest = 1e8;  // seconds: three years

std::optional<int64_t> parse_count(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if (value < 1 || value > kMostTokens) return std::nullopt;
  return value;
}

Result<int64_t> token_count(const JsonReader& line, std::string_view key) {
  ASSIGN_OR_RETURN(const JsonReader value, line.member(key));
  ASSIGN_OR_RETURN(const int64_t count, value.integer());
  if (count < 1 || count > kMostTokens) {
    return invalid_argument(fmt::format("{} is {}, 1 to {} was expected", key, count, kMostTokens));
  }
  return count;
}

Result<PlannedRequest> parse_line(simdjson::dom::parser& parser, std::string_view text,
                                  double earliest) {
  ASSIGN_OR_RETURN(const simdjson::dom::element document, parse_json(parser, text));
  const JsonReader line(document, "");
  PlannedRequest request;
  ASSIGN_OR_RETURN(const JsonReader at, line.member("at"));
  ASSIGN_OR_RETURN(request.at, at.number());
  if (request.at > kLatest) {
    return invalid_argument(fmt::format("at is {}, at most {} was expected", request.at, kLatest));
  }
  if (request.at < earliest) {
    return invalid_argument(request.at < 0
                                ? fmt::format("at is {}, 0 or more was expected", request.at)
                                : fmt::format("at is {}, less than the {} of the request before it",
                                              request.at, earliest));
  }
  ASSIGN_OR_RETURN(const std::string_view model, line.string("model"));
  if (model.empty()) return invalid_argument("model is empty");
  request.model = model;
  ASSIGN_OR_RETURN(request.max_tokens, token_count(line, "max_tokens"));
  const bool text_given = line.find("prompt").has_value();
  if (text_given == line.find("prompt_tokens").has_value()) {
    return invalid_argument("expected either prompt or prompt_tokens");
  }
  if (text_given) {
    ASSIGN_OR_RETURN(const std::string_view prompt, line.string("prompt"));
    if (prompt.empty()) return invalid_argument("prompt is empty");
    request.prompt = prompt;
  } else {
    ASSIGN_OR_RETURN(request.prompt_tokens, token_count(line, "prompt_tokens"));
  }
  return request;
}

int64_t pick(Range range, std::mt19937_64& random) {
  return std::uniform_int_distribution<int64_t>(range.low, range.high)(random);
}

}  // namespace

Result<Range> parse_range(const std::string& what, std::string_view text) {
  const size_t colon = text.find(':');
  const std::optional<int64_t> low = parse_count(text.substr(0, colon));
  const std::optional<int64_t> high =
      colon == std::string_view::npos ? low : parse_count(text.substr(colon + 1));
  if (!low || !high || *low > *high) {
    return invalid_argument(
        fmt::format("{}: \"{}\": a number of tokens (1 to {}) or a range LOW:HIGH was expected",
                    what, text, kMostTokens));
  }
  return Range{*low, *high};
}

SyntheticWorkload::SyntheticWorkload(SyntheticOptions options)
    : options_(std::move(options)),
      zipf_(options_.models.size(), options_.zipf),
      models_(random_stream(options_.seed, Stream::kModels)),
      lengths_(random_stream(options_.seed, Stream::kLengths)) {
  if (options_.rate > 0) arrivals_.emplace(options_.rate, options_.shape, options_.seed);
}

std::optional<PlannedRequest> SyntheticWorkload::next() {
  if (options_.requests > 0 && made_ == options_.requests) return std::nullopt;
  ++made_;
  PlannedRequest request;
  if (arrivals_) request.at = arrivals_->next();
  request.model = options_.models[zipf_.pick(models_)];
  request.prompt_tokens = pick(options_.prompt_tokens, lengths_);
  request.max_tokens = pick(options_.max_tokens, lengths_);
  return request;
}

TraceWorkload::TraceWorkload(std::vector<PlannedRequest> trace, int64_t requests)
    : trace_(std::move(trace)) {
  if (requests > 0 && static_cast<size_t>(requests) < trace_.size()) {
    trace_.resize(static_cast<size_t>(requests));
  }
}

std::optional<PlannedRequest> TraceWorkload::next() {
  if (next_ == trace_.size()) return std::nullopt;
  return std::move(trace_[next_++]);
}

Result<std::vector<PlannedRequest>> parse_trace(const std::string& name, std::string_view text) {
  std::vector<PlannedRequest> trace;
  simdjson::dom::parser parser;
  for (int64_t number = 1; !text.empty(); ++number) {
    const size_t newline = text.find('\n');
    const std::string_view line = text.substr(0, newline);
    text.remove_prefix(newline == std::string_view::npos ? text.size() : newline + 1);
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    Result<PlannedRequest> request = parse_line(parser, line, trace.empty() ? 0 : trace.back().at);
    if (!request.ok()) return request.status().in(fmt::format("{}, line {}", name, number));
    trace.push_back(std::move(*request));
  }
  if (trace.empty()) return invalid_argument(name + ": the trace holds no request");
  return trace;
}

}  // namespace deltad::loadgen
