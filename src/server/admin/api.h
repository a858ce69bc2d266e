// AdminApi: answers the admin listener: variants added, replaced, removed, kept and limited while
// the server runs. Needs a key with `admin`, and refuses web pages, for which a server on this
// machine is no secret. Made before the model is loaded; until set_ready() only liveness is
// answered. Any thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "server/access/access.h"
#include "server/admin/routes.h"
#include "server/exchange.h"
#include "server/observe/observer.h"
#include "server/openai/errors.h"
#include "server/serving.h"

namespace deltad {

class AdminApi final : public HttpHandler {
 public:
  // Both outlive it.
  AdminApi(const Access& access, Observer& observer);

  void set_ready(const Serving& serving) EXCLUDES(mutex_);
  void set_not_ready(std::string reason) EXCLUDES(mutex_);

  void handle(HttpRequest request, std::shared_ptr<Exchange> exchange) override;
  HttpResponse reject(const HttpRequest& partial, int status, const std::string& message) override;

 private:
  // An error for a request that may not go on; else caller says who asks.
  ApiError admit(const HttpRequest& request, const AdminRoute& route,
                 std::shared_ptr<const Caller>* caller) const;
  ApiError serving_now(Serving* serving) const EXCLUDES(mutex_);

  const Access& access_;
  Observer& observer_;
  mutable Mutex mutex_;
  std::optional<Serving> serving_ GUARDED_BY(mutex_);
  std::string reason_ GUARDED_BY(mutex_) = "The model is being loaded.";
};

}  // namespace deltad
