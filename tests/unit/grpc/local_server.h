// A gRPC server on a free port of this machine, for tests of it.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <utility>

#include "base/check.h"
#include "server/grpc/grpc_server.h"

namespace deltad::testing {

inline GrpcOptions local_options() {
  GrpcOptions options;
  options.listen = "127.0.0.1:0";
  options.real_time = false;
  return options;
}

inline std::unique_ptr<GrpcServer> start_local(GrpcRole role, const Access& access,
                                               Observer& observer, const Readiness& readiness,
                                               const GrpcOptions& options = local_options()) {
  auto server = GrpcServer::start(options, role, access, observer, readiness);
  CHECK(server.ok(), "a free port");
  return std::move(*server);
}

inline std::shared_ptr<grpc::Channel> channel_to(const GrpcServer& server) {
  return grpc::CreateChannel(server.address(), grpc::InsecureChannelCredentials());
}

}  // namespace deltad::testing
