// Any bytes as a gRPC request: an error that names a field of the request, or a plan; never a
// crash. The first byte says which request the rest is.
#include <google/protobuf/stubs/logging.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/log.h"
#include "google/rpc/status.pb.h"
#include "server/generation/generation_plan.h"
#include "server/grpc/errors.h"
#include "server/grpc/request_reader.h"
#include "tests/unit/server/fake_router.h"
#include "tests/unit/server/sample_access.h"

namespace {

using namespace deltad;
using namespace deltad::testing;

const Access& access() {
  static const std::unique_ptr<Access> open = open_access();
  return *open;
}

ApiError plan(const Serving& serving, CompletionRequest request) {
  GenerationPlan plan;
  return plan_completion(serving, *access().anybody(), std::move(request), &plan);
}
ApiError plan(const Serving& serving, ChatRequest request) {
  GenerationPlan plan;
  return plan_chat(serving, *access().anybody(), std::move(request), &plan);
}
ApiError plan(const Serving& serving, const TokenizeRequest& request) {
  TokenizeAnswer answer;
  return tokenize(serving, *access().anybody(), request, &answer);
}

template <typename In, typename Request>
void check(const Serving& serving, const std::string& bytes) {
  In in;
  if (!in.ParseFromString(bytes)) return;
  Request request;
  ApiError error = read_request(in, &request);
  if (!error) error = plan(serving, std::move(request));
  if (!error) return;
  if (error.status >= 500) abort();
  const grpc::Status status = grpc_status(error, *In::descriptor());
  google::rpc::Status details;
  if (status.ok() || status.error_message().empty()) abort();
  if (!details.ParseFromString(status.error_details()) || details.details_size() == 0) abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  set_log_level(LogLevel::kOff);
  google::protobuf::SetLogHandler(nullptr);
  if (size == 0) return 0;
  FakeRouter router;
  FakeEngine engine;
  Serving serving;
  serving.router = &router;
  serving.engine = &engine;
  const std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 3 == 0) check<v1::GenerateRequest, CompletionRequest>(serving, bytes);
  if (data[0] % 3 == 1) check<v1::ChatRequest, ChatRequest>(serving, bytes);
  if (data[0] % 3 == 2) check<v1::TokenizeRequest, TokenizeRequest>(serving, bytes);
  return 0;
}
