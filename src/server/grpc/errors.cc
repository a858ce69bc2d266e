#include "server/grpc/errors.h"

#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <cctype>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "server/grpc/proto_text.h"

namespace deltad {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

constexpr int kTooManyRequests = 429;
constexpr int kRetrySeconds = 1;  // as over HTTP, where nothing better is known

std::string reason_of(const ApiError& error) {
  std::string reason = error.code.value_or(error.type);
  std::transform(reason.begin(), reason.end(), reason.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return reason;
}

}  // namespace

grpc::StatusCode grpc_code(int http_status) {
  switch (http_status) {
    case 400:
      return grpc::StatusCode::INVALID_ARGUMENT;
    case 401:
      return grpc::StatusCode::UNAUTHENTICATED;
    case 403:
      return grpc::StatusCode::PERMISSION_DENIED;
    case 404:
      return grpc::StatusCode::NOT_FOUND;
    case 409:
      return grpc::StatusCode::FAILED_PRECONDITION;
    case 413:
    case kTooManyRequests:
      return grpc::StatusCode::RESOURCE_EXHAUSTED;
    case 499:
      return grpc::StatusCode::CANCELLED;
    case 503:
      return grpc::StatusCode::UNAVAILABLE;
    case 504:
      return grpc::StatusCode::DEADLINE_EXCEEDED;
    default:
      return grpc::StatusCode::INTERNAL;
  }
}

std::string field_path(const Descriptor& request, const std::string& param) {
  const std::string first = param.substr(0, param.find_first_of(".["));
  if (request.FindFieldByName(first) != nullptr) return param;
  // A list here, where HTTP has one prompt or many.
  if (first == "prompt" && request.FindFieldByName("prompts") != nullptr)
    return "prompts" + param.substr(first.size());
  for (int i = 0; i < request.field_count(); ++i) {
    const FieldDescriptor& field = *request.field(i);
    if (field.message_type() == nullptr || field.is_repeated()) continue;
    if (field.message_type()->FindFieldByName(first) != nullptr) return field.name() + "." + param;
  }
  return param;
}

grpc::Status grpc_status(const ApiError& error, const Descriptor& request) {
  const grpc::StatusCode code = grpc_code(error.status);
  const std::string message = valid_utf8(error.message);
  google::rpc::Status status;
  status.set_code(code);
  status.set_message(message);
  google::rpc::ErrorInfo info;
  info.set_reason(valid_utf8(reason_of(error)));
  info.set_domain("deltad");
  status.add_details()->PackFrom(info);
  if (error.param) {
    google::rpc::BadRequest bad;
    auto* violation = bad.add_field_violations();
    violation->set_field(valid_utf8(field_path(request, *error.param)));
    violation->set_description(message);
    status.add_details()->PackFrom(bad);
  }
  if (error.status == kTooManyRequests || error.retry_after > 0) {
    google::rpc::RetryInfo retry;
    retry.mutable_retry_delay()->set_seconds(error.retry_after > 0 ? error.retry_after
                                                                   : kRetrySeconds);
    status.add_details()->PackFrom(retry);
  }
  return {code, message, status.SerializeAsString()};
}

}  // namespace deltad
