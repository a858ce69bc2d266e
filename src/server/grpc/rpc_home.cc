#include "server/grpc/rpc_home.h"

namespace deltad {

bool RpcHome::wait_idle(TimePoint deadline) {
  MutexLock lock(mutex_);
  while (calls_ > 0)
    if (!idle_.wait_until(mutex_, deadline)) return calls_ == 0;
  return true;
}

}  // namespace deltad
