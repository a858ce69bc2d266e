#include "server/admin/api.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "base/log.h"
#include "server/admin/actions.h"
#include "server/admin/debug_json.h"
#include "server/admin/page.h"
#include "server/admin/state_json.h"
#include "server/openai/ids.h"
#include "server/openai/reply.h"
#include "server/openai/work.h"
#include "server/request_target.h"

namespace deltad {
namespace {

constexpr size_t kLongestShown = 256;  // bytes of a name, in a log line

// One request that has been let in.
struct Job {
  Serving serving;
  AdminRoute route;
  std::string body;
  std::unique_ptr<Reply> reply;

  AdminAnswer answer;
  ApiError error;

  // Reads files, a replacement's whole.
  bool slow() const {
    switch (route.action) {
      case AdminAction::kAdd:
      case AdminAction::kReplace:
      case AdminAction::kLoadAdapter:
        return true;
      default:
        return false;
    }
  }
  bool changes() const {
    switch (route.action) {
      case AdminAction::kModels:
      case AdminAction::kCache:
      case AdminAction::kDebug:
      case AdminAction::kList:
      case AdminAction::kGet:
      case AdminAction::kPool:
      case AdminAction::kPoolGet:
      case AdminAction::kPoolOperation:
        return false;
      default:
        return true;
    }
  }

  void work() { error = perform(serving, route, body, &answer); }

  void finish() {
    if (answer.variant.size() <= kLongestShown) reply->record().model = answer.variant;
    if (error) return reply->error(error);
    if (changes())
      log_info("admin id={} key={} action={} variant={}", reply->request_id(),
               reply->record().caller.empty() ? "-" : reply->record().caller,
               admin_action_name(route.action), answer.variant);
    if (answer.text.empty())
      reply->json(answer.status, answer.json);
    else
      reply->text(answer.status, "text/plain; charset=utf-8", answer.text);
  }
};

}  // namespace

AdminApi::AdminApi(const Access& access, Observer& observer)
    : access_(access), observer_(observer) {}

ApiError AdminApi::admit(const HttpRequest& request, const AdminRoute& route,
                         std::shared_ptr<const Caller>* caller) const {
  if (request.header("origin") != nullptr &&
      !from_own_page(request, !access_.open_for(Need::kAdmin))) {
    ApiError error = api_error(403, "The admin API does not answer pages of other sites.");
    error.code = "forbidden";
    return error;
  }
  const std::string* given = request.header("authorization");
  auto found = access_.identify(given == nullptr ? "" : bearer_key(*given), route.need);
  if (!found.ok()) return api_error(found.status());
  *caller = std::move(*found);
  if (route.allow.empty()) {
    ApiError error = api_error(404, "There is no such endpoint.");
    error.type = "invalid_request_error";
    error.code = "unknown_url";
    return error;
  }
  if (route.action == AdminAction::kNone) {
    ApiError error = api_error(405, "This endpoint does not take that method.");
    error.code = "method_not_allowed";
    return error;
  }
  return {};
}

void AdminApi::handle(HttpRequest request, std::shared_ptr<Exchange> exchange) {
  const AdminRoute route = match_admin_route(request.method, request.target);
  std::string id = request_id_of(request);
  HttpHeaders headers = {{"X-Request-Id", id}};
  std::shared_ptr<const Caller> caller;
  const ApiError refused = admit(request, route, &caller);
  if (refused.status == 405) headers.emplace_back("Allow", route.allow);
  auto reply =
      std::make_unique<Reply>(exchange, std::move(headers),
                              observer_.begin(Route::kAdmin, std::move(id), request.received));
  if (caller) reply->record().caller = caller->name();
  if (refused) return reply->error(refused);
  if (route.action == AdminAction::kHealth) return reply->json(200, Json{{"status", "ok"}});
  if (route.action == AdminAction::kPage)
    return reply->send(admin_page_response(*find_admin_page_file(path_of(request.target))));
  auto job = std::make_shared<Job>();
  if (const ApiError error = readiness_.check(&job->serving)) return reply->error(error);
  if (route.action == AdminAction::kDebug)
    return reply->json(200, debug_json(job->serving, observer_));
  if (route.action == AdminAction::kPlayground)
    // Who may change every variant may ask it, too.
    return answer_work(job->serving, access_.anybody(), Route::kChat, std::move(request),
                       std::move(reply));
  if (route.action == AdminAction::kState)
    return reply->json(200, state_json(job->serving, observer_.metrics().figures()));
  job->route = route;
  job->body = std::move(request.body);
  job->reply = std::move(reply);
  if (!job->slow()) {
    job->work();
    return job->finish();
  }
  exchange->post_aside([job, exchange] {
    job->work();
    exchange->post([job] { job->finish(); });
  });
}

HttpResponse AdminApi::reject(const HttpRequest& partial, int status, const std::string& message) {
  const std::string id = request_id_of(partial);
  const auto record = observer_.begin(Route::kAdmin, id, partial.received);
  record->error = "refused";
  record->end(status);
  return error_response(api_error(status, message), {{"X-Request-Id", id}});
}

}  // namespace deltad
