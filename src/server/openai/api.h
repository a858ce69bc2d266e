// OpenAiApi: answers every HTTP request: finds the endpoint, checks key and readiness, and gives
// each answer its request id and the headers for pages of other sites. Made before the model is
// loaded; until set_ready() only liveness, readiness and metrics are answered. Any thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "server/access/access.h"
#include "server/exchange.h"
#include "server/observe/observer.h"
#include "server/openai/reply.h"
#include "server/openai/routes.h"
#include "server/serving.h"

namespace deltad {

struct ApiOptions {
  std::vector<std::string> cors_origins = {"*"};
};

class OpenAiApi final : public HttpHandler {
 public:
  // Access and observer outlive it.
  OpenAiApi(ApiOptions options, const Access& access, Observer& observer);

  void set_ready(const Serving& serving) EXCLUDES(mutex_);
  // From now on new requests get a 503 with this reason ("The model is being loaded.", "The server
  // is shutting down."). Those that run go on.
  void set_not_ready(std::string reason) EXCLUDES(mutex_);

  void handle(HttpRequest request, std::shared_ptr<Exchange> exchange) override;
  HttpResponse reject(const HttpRequest& partial, int status, const std::string& message) override;

 private:
  ApiError serving_now(Serving* serving) const EXCLUDES(mutex_);
  HttpHeaders common_headers(const HttpRequest& request, const std::string& request_id) const;
  void answer(const RouteMatch& match, HttpRequest request, std::unique_ptr<Reply> reply);
  void answer_model(const Serving& serving, const Caller& caller, const std::string& model,
                    Reply& reply) const;
  void ready(Reply& reply) const;
  void metrics_page(Reply& reply);

  const ApiOptions options_;
  const Access& access_;
  Observer& observer_;
  mutable Mutex mutex_;
  std::optional<Serving> serving_ GUARDED_BY(mutex_);
  std::string reason_ GUARDED_BY(mutex_) = "The model is being loaded.";
};

}  // namespace deltad
