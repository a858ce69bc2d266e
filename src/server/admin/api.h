// AdminApi: answers the admin listener: variants added, replaced, removed, kept and limited while
// the server runs. Needs a key with `admin`, and refuses web pages, for which a server on this
// machine is no secret. Made before the model is loaded; until it is ready only liveness is
// answered. Any thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/access/access.h"
#include "server/admin/routes.h"
#include "server/exchange.h"
#include "server/observe/observer.h"
#include "server/openai/errors.h"
#include "server/readiness.h"

namespace deltad {

class AdminApi final : public HttpHandler {
 public:
  // Both outlive it.
  AdminApi(const Access& access, Observer& observer);

  Readiness& readiness() { return readiness_; }

  void handle(HttpRequest request, std::shared_ptr<Exchange> exchange) override;
  HttpResponse reject(const HttpRequest& partial, int status, const std::string& message) override;

 private:
  // An error for a request that may not go on; else caller says who asks.
  ApiError admit(const HttpRequest& request, const AdminRoute& route,
                 std::shared_ptr<const Caller>* caller) const;

  const Access& access_;
  Observer& observer_;
  Readiness readiness_{Readiness::Engine::kAny};
};

}  // namespace deltad
