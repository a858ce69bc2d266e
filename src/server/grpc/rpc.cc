#include "server/grpc/rpc.h"

#include <grpcpp/server_context.h>

#include <algorithm>
#include <exception>

#include "base/check.h"
#include "base/log.h"
#include "server/access/access.h"
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

std::string request_id_of(const grpc::CallbackServerContext& context) {
  std::string id = metadata_of(context, "x-request-id");
  return valid_request_id(id) ? id : random_id("req-");
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

Rpc::Rpc(std::shared_ptr<RpcHome> home, const KnownMethod& method,
         const google::protobuf::Descriptor& request, grpc::CallbackServerContext& context)
    : home_(std::move(home)),
      method_(method),
      request_(request),
      context_(context),
      line_(std::make_shared<WorkLine>(home_->threads)),
      record_(home_->observer.begin(
          method.route, request_id_of(context), Clock::real().now(),
          {metadata_of(context, "traceparent"), metadata_of(context, "tracestate")})),
      deadline_(deadline_of(context)) {}

void Rpc::begin(std::function<void(const Serving& serving)> work) {
  self_ = shared_from_this();
  begun_.store(true, std::memory_order_release);
  home_->call_began();
  post([self = self_, work = std::move(work)] {
    self->context_.AddInitialMetadata("x-request-id", self->record_->id());
    Serving serving;
    if (const ApiError error = self->admit(&serving)) return self->fail(error);
    self->start_timer(serving.request_seconds);
    work(serving);
  });
}

// What is refused costs nothing: before the request is looked at.
ApiError Rpc::admit(Serving* serving) {
  auto caller =
      home_->access.identify(bearer_key(metadata_of(context_, "authorization")), method_.need);
  if (!caller.ok()) return api_error(caller.status());
  caller_ = std::move(*caller);
  record_->caller = caller_->name();
  RETURN_IF_API_ERROR(home_->readiness.check(serving));
  if (method_.metered == Metered::kNo) return {};
  Result<Admission> admission = caller_->admit();
  if (!admission.ok()) return api_error(admission.status());
  admission_ = std::make_shared<Admission>(std::move(*admission));
  return {};
}

// request_seconds: the server's own bound; 0: none.
void Rpc::start_timer(double request_seconds) {
  if (request_seconds > 0)
    deadline_ = std::min(deadline_, record_->received() + from_seconds(request_seconds));
  if (deadline_ == TimePoint::max()) return;
  timer_ = home_->threads.at(
      deadline_, [self = shared_from_this()] { self->post([self] { self->expired(); }); });
}

void Rpc::post(std::function<void()> work) {
  line_->post([self = shared_from_this(), work = std::move(work)] {
    try {
      work();
    } catch (const std::exception& e) {
      self->broken(e.what());
    }
  });
}

// A fault of ours. Whoever makes the answer is told, too.
void Rpc::broken(const char* what) {
  log_error("work of a gRPC call failed: {}", what);
  const ApiError error = api_error(500, "The request could not be served.");
  on_disconnect_ ? cut(error) : fail(error);
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
    try {
      work();
    } catch (const std::exception& e) {
      return self->post([self, what = std::string(e.what())] { self->broken(what.c_str()); });
    }
    self->post(std::move(after));
  });
}

void Rpc::fail(const ApiError& error) {
  if (over_) return;
  record_->error = error.status >= 500 ? error.message : error.code.value_or(error.type);
  end(grpc_code(error.status));
  finish(grpc_status(error, request_));
}

void Rpc::client_gone() {
  if (over_) return;
  end(gone_);
  finish(grpc::Status(grpc::StatusCode::CANCELLED, "The client has left."));
}

void Rpc::send_now(const ApiError& error) {
  grpc_call_cancel_with_status(context_.c_call(),
                               static_cast<grpc_status_code>(grpc_code(error.status)),
                               error.message.c_str(), nullptr);
}

void Rpc::cut(const ApiError& error) {
  if (!over_) record_->error = error.code.value_or(error.type);
  gone_ = grpc_code(error.status);
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

void Rpc::end(grpc::StatusCode code) {
  over_ = true;
  if (timer_) home_->threads.forget(*timer_);
  on_disconnect_ = nullptr;
  on_deadline_ = nullptr;
  admission_.reset();  // before the client hears of it and calls again
  record_->end(code);
}

void Rpc::cancelled() {
  CHECK(begun_.load(std::memory_order_acquire), "a call that has not begun");
  post([self = shared_from_this()] { self->left(); });
}

void Rpc::done() {
  CHECK(begun_.load(std::memory_order_acquire), "a call that has not begun");
  home_->call_ended();
  const std::shared_ptr<Rpc> last = std::move(self_);
}

}  // namespace deltad
