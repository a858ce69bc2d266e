#include "server/grpc/rpc.h"

#include <grpcpp/server_context.h>

#include <algorithm>

#include "server/api_keys.h"
#include "server/openai/ids.h"

namespace deltad {
namespace {

// Requests beyond this are read and tokenized beside the other calls.
constexpr size_t kLargeRequest = 64u << 10;
constexpr double kNoDeadline = 1e6;  // seconds

std::string metadata_of(const grpc::CallbackServerContext& context, const char* name) {
  const auto found = context.client_metadata().find(name);
  return found == context.client_metadata().end()
             ? std::string()
             : std::string(found->second.data(), found->second.size());
}

// gRPC counts in wall time.
TimePoint deadline_of(const grpc::CallbackServerContext& context) {
  const gpr_timespec left =
      gpr_time_sub(gpr_convert_clock_type(context.raw_deadline(), GPR_CLOCK_MONOTONIC),
                   gpr_now(GPR_CLOCK_MONOTONIC));
  const double s = static_cast<double>(left.tv_sec) + left.tv_nsec * 1e-9;
  return s > kNoDeadline ? TimePoint::max() : Clock::real().now() + from_seconds(s);
}

}  // namespace

Rpc::Rpc(std::shared_ptr<RpcHome> home, Route route, const google::protobuf::Descriptor& request,
         grpc::CallbackServerContext& context)
    : home_(std::move(home)),
      route_(route),
      request_(request),
      context_(context),
      line_(std::make_shared<WorkLine>(home_->threads)),
      received_(Clock::real().now()),
      deadline_(deadline_of(context)),
      request_id_(metadata_of(context, "x-request-id")),
      authorization_(metadata_of(context, "authorization")) {
  if (!valid_request_id(request_id_)) request_id_ = random_id("req-");
}

bool Rpc::begin(Serving* serving) {
  self_ = shared_from_this();
  home_->call_began();
  context_.AddInitialMetadata("x-request-id", request_id_);
  if (const ApiError error = admit(serving)) {
    fail(error);
    return false;
  }
  if (serving->request_seconds > 0)
    deadline_ = std::min(deadline_, received_ + from_seconds(serving->request_seconds));
  if (deadline_ != TimePoint::max())
    timer_ =
        home_->threads.at(deadline_, [self = self_] { self->post([self] { self->expired(); }); });
  return true;
}

ApiError Rpc::admit(Serving* serving) {
  HttpRequest request;
  request.headers.emplace_back("authorization", std::move(authorization_));
  if (!has_right_key(request, home_->options.api_keys))
    return api_error(401, "The API key is missing or wrong.");
  return home_->serving_now(serving);
}

void Rpc::prepare(size_t bytes, std::function<void()> work, std::function<void()> after) {
  auto self = shared_from_this();
  if (bytes <= kLargeRequest) {
    post([self, work = std::move(work), after = std::move(after)] {
      work();
      after();
    });
    return;
  }
  home_->aside.post([self, work = std::move(work), after = std::move(after)]() mutable {
    work();
    self->post(std::move(after));
  });
}

void Rpc::fail(const ApiError& error) {
  if (over_) return;
  error_ = error.status >= 500 ? error.message : error.code.value_or(error.type);
  end(error.status);
  finish(grpc_status(error, request_));
}

void Rpc::client_gone() {
  if (over_) return;
  end(kClientGone);
  finish(grpc::Status(grpc::StatusCode::CANCELLED, "The client has left."));
}

void Rpc::send_now(const ApiError& error) {
  grpc_call_cancel_with_status(context_.c_call(),
                               static_cast<grpc_status_code>(grpc_code(error.status)),
                               error.message.c_str(), nullptr);
}

void Rpc::cut(const ApiError& error) {
  error_ = error.message;
  send_now(error);
  left();
}

void Rpc::left() {
  if (over_) return;
  if (!on_disconnect_) return client_gone();
  const auto handler = std::exchange(on_disconnect_, nullptr);
  handler();
}

void Rpc::expired() {
  if (over_) return;
  const ApiError error = api_error({Code::kDeadlineExceeded, "The request's deadline passed."});
  if (writing()) send_now(error);
  if (!on_deadline_) return fail(error);
  const auto handler = std::exchange(on_deadline_, nullptr);
  handler();
}

void Rpc::end(int http_status) {
  over_ = true;
  if (timer_) home_->threads.forget(*timer_);
  on_disconnect_ = nullptr;
  on_deadline_ = nullptr;
  home_->metrics.request_done(route_, http_status);
}

void Rpc::cancelled() {
  post([self = shared_from_this()] { self->left(); });
}

void Rpc::done() {
  home_->call_ended();
  const std::shared_ptr<Rpc> last = std::move(self_);
}

}  // namespace deltad
