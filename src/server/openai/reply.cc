#include "server/openai/reply.h"

#include <nlohmann/json.hpp>
#include <utility>

namespace deltad {
namespace {

constexpr std::string_view kJson = "application/json";
constexpr int kRetrySeconds = 1;  // where nothing better is known

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

Reply::Reply(std::shared_ptr<Exchange> exchange, HttpHeaders headers,
             std::unique_ptr<RequestRecord> record)
    : exchange_(std::move(exchange)), headers_(std::move(headers)), record_(std::move(record)) {}

void Reply::json(int status, const Json& body) { send(status, kJson, to_text(body)); }

void Reply::text(int status, std::string_view content_type, std::string body) {
  send(status, content_type, std::move(body));
}

void Reply::error(const ApiError& error) {
  if (record_->ended()) return;
  record_->error = error.status >= 500 ? error.message : error.code.value_or(error.type);
  exchange_->send(error_response(error, headers_));
  record_->end(error.status);
}

void Reply::send(HttpResponse response) {
  if (record_->ended()) return;
  const int status = response.status;
  response.headers.insert(response.headers.begin(), headers_.begin(), headers_.end());
  exchange_->send(std::move(response));
  record_->end(status);
}

void Reply::send(int status, std::string_view content_type, std::string body) {
  HttpResponse response;
  response.status = status;
  response.headers.emplace_back("Content-Type", content_type);
  response.body = std::move(body);
  send(std::move(response));
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
  if (record_->ended()) return;
  exchange_->push("data: [DONE]\n\n");
  exchange_->finish();
  record_->end(200);
}

void Reply::end_events_with(const ApiError& error) {
  if (record_->ended()) return;
  record_->error = error.message;
  event(error_json(error));
  exchange_->push("data: [DONE]\n\n");
  exchange_->finish(true);
  record_->end(error.status);
}

void Reply::client_gone() { record_->end(kClientGone); }

}  // namespace deltad
