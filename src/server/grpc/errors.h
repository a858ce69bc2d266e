// The one mapping of errors to gRPC: code, message, and the details google.rpc.BadRequest,
// ErrorInfo and RetryInfo. Pure.
#pragma once

#include <grpcpp/support/status.h>

#include <string>

#include "server/openai/errors.h"

namespace google::protobuf {
class Descriptor;
}

namespace deltad {

// request: the type whose field the error's param is, or is inside of.
grpc::Status grpc_status(const ApiError& error, const google::protobuf::Descriptor& request);
grpc::StatusCode grpc_code(int http_status);

// The path in a request of this type of what the HTTP API calls param: "top_p" →
// "sampling.top_p".
std::string field_path(const google::protobuf::Descriptor& request, const std::string& param);

}  // namespace deltad
