#include "server/grpc/reflection_bound.h"

#include <grpcpp/server_context.h>

#include <string_view>
#include <utility>

#include "base/mutex.h"

namespace deltad {
namespace {

using grpc::experimental::InterceptionHookPoints;

// A call, as long as it can be cancelled.
class Cancellable {
 public:
  explicit Cancellable(grpc::ServerContextBase* context) : context_(context) {}
  void cancel() EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    if (context_ != nullptr) context_->TryCancel();
  }
  void over() EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    context_ = nullptr;
  }

 private:
  Mutex mutex_;
  grpc::ServerContextBase* context_ GUARDED_BY(mutex_);
};

class Bound final : public grpc::experimental::Interceptor {
 public:
  Bound(std::shared_ptr<RpcHome> home, grpc::ServerContextBase* context)
      : home_(std::move(home)),
        call_(std::make_shared<Cancellable>(context)),
        timer_(home_->threads.at(Clock::real().now() + home_->options.reflection_time,
                                 [call = call_] { call->cancel(); })) {}
  ~Bound() override { end(); }

  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_STATUS)) end();
    methods->Proceed();
  }

 private:
  void end() {
    home_->threads.forget(timer_);
    call_->over();
  }

  const std::shared_ptr<RpcHome> home_;
  const std::shared_ptr<Cancellable> call_;
  const WorkThreads::Timer timer_;
};

class Factory final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit Factory(std::shared_ptr<RpcHome> home) : home_(std::move(home)) {}
  // gRPC owns it. Null: none for this call.
  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* info) override {
    const std::string_view method = info->method();
    if (method.find(".reflection.") == std::string_view::npos) return nullptr;
    return new Bound(home_, info->server_context());
  }

 private:
  const std::shared_ptr<RpcHome> home_;
};

}  // namespace

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> reflection_bound(
    std::shared_ptr<RpcHome> home) {
  return std::make_unique<Factory>(std::move(home));
}

}  // namespace deltad
