#include "server/grpc/rpc_home.h"

namespace deltad {

ApiError RpcHome::serving_now(Serving* serving) const {
  MutexLock lock(mutex_);
  if (!serving_) return api_error(503, reason_);
  *serving = *serving_;
  if (!serving->engine->healthy()) return api_error(503, "The engine is not healthy.");
  return {};
}

bool RpcHome::wait_idle(TimePoint deadline) {
  MutexLock lock(mutex_);
  while (calls_ > 0)
    if (!idle_.wait_until(mutex_, deadline)) return calls_ == 0;
  return true;
}

}  // namespace deltad
