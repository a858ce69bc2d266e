// OpenAiApi: answers every HTTP request: finds the endpoint, checks key and readiness, and gives
// each answer its request id and the headers for pages of other sites. Made before the model is
// loaded; until it is ready only liveness, readiness and metrics are answered. Any thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/access/access.h"
#include "server/exchange.h"
#include "server/observe/observer.h"
#include "server/openai/reply.h"
#include "server/openai/routes.h"
#include "server/readiness.h"
#include "server/serving.h"

namespace deltad {

struct ApiOptions {
  std::vector<std::string> cors_origins = {"*"};
};

class OpenAiApi final : public HttpHandler {
 public:
  // Access and observer outlive it.
  OpenAiApi(ApiOptions options, const Access& access, Observer& observer);

  Readiness& readiness() { return readiness_; }

  void handle(HttpRequest request, std::shared_ptr<Exchange> exchange) override;
  HttpResponse reject(const HttpRequest& partial, int status, const std::string& message) override;

 private:
  HttpHeaders common_headers(const HttpRequest& request, const std::string& request_id) const;
  void answer(const RouteMatch& match, HttpRequest request, std::unique_ptr<Reply> reply);
  void answer_model(const Serving& serving, const Caller& caller, const std::string& model,
                    Reply& reply) const;
  void health(Reply& reply) const;
  void ready(Reply& reply) const;
  void metrics_page(Reply& reply);

  const ApiOptions options_;
  const Access& access_;
  Observer& observer_;
  Readiness readiness_{Readiness::Engine::kHealthy};
};

}  // namespace deltad
