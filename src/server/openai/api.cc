#include "server/openai/api.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "server/openai/cors.h"
#include "server/openai/ids.h"
#include "server/openai/models.h"
#include "server/openai/routes.h"
#include "server/openai/work.h"
#include "server/request_target.h"

namespace deltad {
namespace {

TraceHeaders trace_headers(const HttpRequest& request) {
  TraceHeaders trace;
  if (const std::string* parent = request.header("traceparent")) trace.traceparent = *parent;
  if (const std::string* state = request.header("tracestate")) trace.tracestate = *state;
  return trace;
}

}  // namespace

OpenAiApi::OpenAiApi(ApiOptions options, const Access& access, Observer& observer)
    : options_(std::move(options)), access_(access), observer_(observer) {}

HttpHeaders OpenAiApi::common_headers(const HttpRequest& request,
                                      const std::string& request_id) const {
  HttpHeaders headers = cors_headers(options_.cors_origins, request);
  headers.emplace_back("X-Request-Id", request_id);
  return headers;
}

void OpenAiApi::handle(HttpRequest request, std::shared_ptr<Exchange> exchange) {
  std::string id = request_id_of(request);
  const RouteMatch match = match_route(request.target);
  HttpHeaders headers = common_headers(request, id);
  if (request.method == "OPTIONS" && !match.allow.empty()) {
    HttpResponse response = preflight(options_.cors_origins, request, std::string(match.allow));
    response.headers.emplace_back("X-Request-Id", id);
    observer_.begin(match.route, std::move(id), request.received)->end(response.status);
    exchange->send(std::move(response));
    return;
  }
  const bool allowed = method_allowed(request.method, match.allow);
  if (!match.allow.empty() && !allowed) headers.emplace_back("Allow", match.allow);
  auto reply = std::make_unique<Reply>(
      std::move(exchange), std::move(headers),
      observer_.begin(match.route, std::move(id), request.received, trace_headers(request)));
  if (match.allow.empty()) {
    ApiError error = api_error(404, "There is no such endpoint.");
    error.type = "invalid_request_error";
    error.code = "unknown_url";
    return reply->error(error);
  }
  if (!allowed) {
    ApiError error = api_error(405, "This endpoint does not take that method.");
    error.code = "method_not_allowed";
    return reply->error(error);
  }
  answer(match, std::move(request), std::move(reply));
}

void OpenAiApi::answer(const RouteMatch& match, HttpRequest request, std::unique_ptr<Reply> reply) {
  const std::string* given = request.header("authorization");
  auto caller = access_.identify(given == nullptr ? "" : bearer_key(*given), match.need);
  if (!caller.ok()) return reply->error(api_error(caller.status()));
  reply->record().caller = (*caller)->name();
  switch (match.route) {
    case Route::kHealth:
      return health(*reply);
    case Route::kReady:
      return ready(*reply);
    case Route::kMetrics:
      return metrics_page(*reply);
    default:
      break;
  }
  Serving serving;
  if (const ApiError error = readiness_.check(&serving)) return reply->error(error);
  if (match.route == Route::kModels) return answer_model(serving, **caller, match.model, *reply);
  answer_work(serving, std::move(*caller), match.route, std::move(request), std::move(reply));
}

void OpenAiApi::answer_model(const Serving& serving, const Caller& caller, const std::string& model,
                             Reply& reply) const {
  if (model.empty()) return reply.json(200, list_models(serving, &caller));
  Json json;
  if (const ApiError error = get_model(serving, caller, model, &json)) return reply.error(error);
  reply.json(200, json);
}

// Whether the process is worth keeping: it is not once the device has failed for good. And, once
// the model is loaded, what runs it and what else could.
void OpenAiApi::health(Reply& reply) const {
  Serving serving;
  (void)readiness_.check(&serving);  // before it is ready, and while it drains, it is alive
  const Status device = serving.engine == nullptr ? Status() : serving.engine->device_health();
  if (!device.ok()) return reply.error(api_error(503, device.message()));
  Json json = {{"status", "ok"}};
  if (!serving.device.empty()) {
    json["device"] = serving.device;
    json["backends"] = serving.backends;
  }
  reply.json(200, json);
}

void OpenAiApi::ready(Reply& reply) const {
  Serving serving;
  if (const ApiError error = readiness_.check(&serving)) return reply.error(error);
  reply.json(200, Json{{"status", "ready"}});
}

void OpenAiApi::metrics_page(Reply& reply) {
  MetricsSnapshot snapshot;
  Serving serving;
  snapshot.ready = !readiness_.check(&serving);
  if (observer_.spans() != nullptr) snapshot.spans = observer_.spans()->counts();
  if (serving.router != nullptr) {
    snapshot.loaded = true;
    snapshot.healthy = serving.engine->healthy();
    snapshot.base_name = serving.router->base_name();
    snapshot.base_bytes = serving.base_bytes;
    snapshot.engine = serving.engine->stats();
    snapshot.router = serving.router->stats();
    if (serving.pool != nullptr) snapshot.pool = serving.pool->figures();
    for (const std::string& name : observer_.metrics().variants())
      if (!serving.router->resolve(name).ok()) observer_.metrics().forget(name);
  }
  reply.text(200, "text/plain; version=0.0.4; charset=utf-8", observer_.metrics().render(snapshot));
}

HttpResponse OpenAiApi::reject(const HttpRequest& partial, int status, const std::string& message) {
  const std::string id = request_id_of(partial);
  const Route route = match_route(partial.target).route;
  const auto record = observer_.begin(route, id, partial.received);
  record->error = "refused";
  record->end(status);
  return error_response(api_error(status, message), common_headers(partial, id));
}

}  // namespace deltad
