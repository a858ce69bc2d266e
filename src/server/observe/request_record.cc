#include "server/observe/request_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/log.h"
#include "server/observe/observer.h"

namespace deltad {
namespace {

constexpr int kDropped = 500;

std::string milliseconds(double seconds) {
  return seconds < 0 ? std::string("-") : fmt::format("{:.1f}", seconds * 1e3);
}

std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string or_dash(const std::string& text) {
  if (text.empty()) return "-";
  const bool plain = std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return c > ' ' && c != 0x7f && c != '"' && c != '=';
  });
  return plain ? text : quoted(text);
}

bool is_probe(Route route) {
  return route == Route::kHealth || route == Route::kReady || route == Route::kMetrics;
}

}  // namespace

RequestRecord::RequestRecord(Observer& observer, Route route, std::string id, TimePoint received)
    : observer_(observer), route_(route), id_(std::move(id)), received_(received) {}

RequestRecord::~RequestRecord() { end(kDropped); }

ServerMetrics& RequestRecord::metrics() const { return observer_.metrics(); }

void RequestRecord::end(int code) {
  if (ended_) return;
  ended_ = true;
  metrics().request_done(route_, code);
  write_line(code);
}

void RequestRecord::write_line(int code) const {
  const LogLevel level = is_probe(route_) ? LogLevel::kDebug : LogLevel::kInfo;
  if (!log_enabled(level)) return;
  log(level,
      "request id={} key={} endpoint={} variant={} status={} prompt_tokens={} cached_tokens={} "
      "output_tokens={} queue_ms={} ttft_ms={} total_ms={} finish={}{}",
      id_, or_dash(caller), route_name(route_), or_dash(model), code_label(code), prompt_tokens,
      cached_tokens, output_tokens, milliseconds(queue), milliseconds(first_token),
      milliseconds(seconds(Clock::real().now() - received_)), or_dash(finish),
      error.empty() ? "" : " error=" + quoted(error));
}

}  // namespace deltad
