// Readiness: whether requests are taken, and if not, why. One for those of the API and one for
// those of the admin API, whatever their protocol; probes and gRPC's health ask the same. Any
// thread.
#pragma once

#include <optional>
#include <string>

#include "base/mutex.h"
#include "server/openai/errors.h"
#include "server/serving.h"

namespace deltad {

class Readiness {
 public:
  enum class Engine { kHealthy, kAny };  // what requests need of it

  explicit Readiness(Engine needed) : needed_(needed) {}

  void set_ready(const Serving& serving) EXCLUDES(mutex_);
  // The model is loaded, but requests are not taken yet.
  void set_loaded(const Serving& serving, std::string reason) EXCLUDES(mutex_);
  // From now on new requests get a 503 with this reason ("The server is shutting down."), whatever
  // is set later: a model that is loaded then changes nothing. Those that run go on.
  void close(std::string reason) EXCLUDES(mutex_);

  // An error if requests are not taken; *serving is set as soon as the model is loaded.
  ApiError check(Serving* serving) const EXCLUDES(mutex_);

 private:
  const Engine needed_;
  mutable Mutex mutex_;
  std::optional<Serving> serving_ GUARDED_BY(mutex_);  // from the first set_…() with one on
  std::string reason_ GUARDED_BY(mutex_) = "The model is being loaded.";  // "": requests are taken
  bool closed_ GUARDED_BY(mutex_) = false;
};

}  // namespace deltad
