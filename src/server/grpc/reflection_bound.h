// Reflection's streams end after some time: each takes one of few threads, for as long as its
// client likes. An interceptor of gRPC's; its calls come on gRPC's threads, the end on those of the
// server.
#pragma once

#include <grpcpp/support/server_interceptor.h>

#include <memory>

#include "base/clock.h"
#include "server/grpc/rpc_home.h"

namespace deltad {

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> reflection_bound(
    std::shared_ptr<RpcHome> home);

}  // namespace deltad
