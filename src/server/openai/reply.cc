#include "server/openai/reply.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace deltad {
namespace {

constexpr int kClientGone = 499;
constexpr std::string_view kJson = "application/json";
constexpr int kRetrySeconds = 1;  // where nothing better is known

std::string milliseconds(double seconds) {
  return seconds < 0 ? std::string("-") : fmt::format("{:.1f}", seconds * 1e3);
}

std::string or_dash(const std::string& text) {
  if (text.empty()) return "-";
  const bool plain = std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return c > ' ' && c != 0x7f && c != '"' && c != '=';
  });
  return plain ? text : to_text(Json(text));
}

bool is_probe(Route route) {
  return route == Route::kHealth || route == Route::kReady || route == Route::kMetrics;
}

}  // namespace

HttpResponse error_response(const ApiError& error, HttpHeaders headers) {
  HttpResponse response;
  response.status = error.status;
  response.headers = std::move(headers);
  response.headers.emplace_back("Content-Type", kJson);
  if (error.status == 429) {
    const int wait = error.retry_after > 0 ? error.retry_after : kRetrySeconds;
    response.headers.emplace_back("Retry-After", std::to_string(wait));
  }
  if (error.status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  response.body = to_text(error_json(error));
  return response;
}

Reply::Reply(std::shared_ptr<Exchange> exchange, Route route, std::string request_id,
             HttpHeaders headers, TimePoint received, ServerMetrics& metrics)
    : exchange_(std::move(exchange)),
      route_(route),
      request_id_(std::move(request_id)),
      headers_(std::move(headers)),
      received_(received),
      metrics_(metrics) {}

void Reply::json(int status, const Json& body) { send(status, kJson, to_text(body)); }

void Reply::text(int status, std::string_view content_type, std::string body) {
  send(status, content_type, std::move(body));
}

void Reply::error(const ApiError& error) {
  if (done_) return;
  error_ = error.status >= 500 ? error.message : error.code.value_or(error.type);
  exchange_->send(error_response(error, headers_));
  done(error.status);
}

void Reply::send(int status, std::string_view content_type, std::string body) {
  if (done_) return;
  HttpResponse response;
  response.status = status;
  response.headers = headers_;
  response.headers.emplace_back("Content-Type", content_type);
  response.body = std::move(body);
  exchange_->send(std::move(response));
  done(status);
}

void Reply::begin_events() {
  HttpResponse head;
  head.headers = headers_;
  head.headers.emplace_back("Content-Type", "text/event-stream; charset=utf-8");
  head.headers.emplace_back("Cache-Control", "no-cache");
  head.headers.emplace_back("X-Accel-Buffering", "no");
  exchange_->begin_stream(std::move(head));
  streaming_ = true;
}

void Reply::event(const Json& data, std::function<void()> written) {
  exchange_->push("data: " + to_text(data) + "\n\n", std::move(written));
}

void Reply::end_events() {
  if (done_) return;
  exchange_->push("data: [DONE]\n\n");
  exchange_->finish();
  done(200);
}

void Reply::end_events_with(const ApiError& error) {
  if (done_) return;
  error_ = error.message;
  event(error_json(error));
  exchange_->push("data: [DONE]\n\n");
  exchange_->finish(true);
  done(error.status);
}

void Reply::client_gone() { done(kClientGone); }

void Reply::done(int status) {
  if (done_) return;
  done_ = true;
  metrics_.request_done(route_, status);
  const LogLevel level = is_probe(route_) ? LogLevel::kDebug : LogLevel::kInfo;
  if (!log_enabled(level)) return;
  log(level,
      "request id={} key={} endpoint={} variant={} status={} prompt_tokens={} cached_tokens={} "
      "output_tokens={} queue_ms={} ttft_ms={} total_ms={} finish={}{}",
      request_id_, or_dash(record_.key), route_name(route_), or_dash(record_.model), status,
      record_.prompt_tokens, record_.cached_tokens, record_.output_tokens,
      milliseconds(record_.queue), milliseconds(record_.first_token),
      milliseconds(seconds(Clock::real().now() - received_)), or_dash(record_.finish),
      error_.empty() ? "" : " error=" + to_text(Json(error_)));
}

}  // namespace deltad
