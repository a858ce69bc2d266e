#include "server/grpc/grpc_server.h"

#include <fmt/core.h>
#include <google/protobuf/stubs/logging.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>

#include <algorithm>
#include <limits>
#include <mutex>

#include "base/log.h"
#include "server/grpc/acceptor.h"
#include "server/grpc/admin_service.h"
#include "server/grpc/credentials.h"
#include "server/grpc/inference_service.h"
#include "server/grpc/reflection_bound.h"
#include "server/grpc/rpc_home.h"

namespace deltad {
namespace {

// Reflection is the one service that takes a thread for each call, until reflection_bound.h ends
// it.
constexpr int kReflectionThreads = 8;
// Whether a client that has calls open and says nothing is still there.
constexpr int kKeepaliveTimeoutMs = 20'000;

int milliseconds(Duration time) {
  return static_cast<int>(
      std::min(seconds(time) * 1e3, static_cast<double>(std::numeric_limits<int>::max())));
}

// What the libraries say of what clients send (a string that is not UTF-8: the field's name) is no
// line of a log that others read.
void log_of_protobuf(google::protobuf::LogLevel, const char*, int, const std::string& message) {
  log_event(LogLevel::kDebug, "protobuf", {{"message", message}});
}

// Once, before the first server is built: all are settings of the process.
void set_up_grpc() {
  static std::once_flag once;
  std::call_once(once, [] {
    google::protobuf::SetLogHandler(log_of_protobuf);
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  });
}

class GrpcServerImpl final : public GrpcServer {
 public:
  GrpcServerImpl(const GrpcOptions& options, GrpcRole role, const Access& access,
                 Observer& observer, const Readiness& readiness,
                 const CertificateStore* certificates)
      : home_(std::make_shared<RpcHome>(options, access, observer, readiness)),
        credentials_(server_credentials(certificates)) {
    if (role == GrpcRole::kAdmin) {
      service_ = std::make_unique<AdminService>(home_);
      service_name_ = v1::Admin::service_full_name();
    } else {
      service_ = std::make_unique<InferenceService>(home_);
      service_name_ = v1::Inference::service_full_name();
    }
  }
  ~GrpcServerImpl() override { stop(); }

  Status listen() {
    set_up_grpc();
    const GrpcOptions& options = home_->options;
    const std::string host = options.listen.substr(0, options.listen.rfind(':'));
    ASSIGN_OR_RETURN(
        acceptor_,
        Acceptor::listen(options.listen, {options.connections, options.connections_per_address}));
    grpc::ServerBuilder builder;
    connections_ = builder.experimental().AddExternalConnectionAcceptor(
        grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, credentials_);
    std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> bounds;
    bounds.push_back(reflection_bound(home_));
    builder.experimental().SetInterceptorCreators(std::move(bounds));
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, options.streams);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, milliseconds(options.idle_timeout));
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, milliseconds(options.idle_timeout));
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
    builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                               milliseconds(options.handshake_timeout));
    builder.SetMaxReceiveMessageSize(static_cast<int>(options.message_bytes));
    builder.SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
    builder.SetSyncServerOption(grpc::ServerBuilder::MIN_POLLERS, 1);
    builder.SetSyncServerOption(grpc::ServerBuilder::MAX_POLLERS, 1);
    grpc::ResourceQuota quota("deltad");
    quota.SetMaxThreads(kReflectionThreads);
    quota.Resize(options.memory_bytes);
    builder.SetResourceQuota(quota);
    builder.RegisterService(service_.get());
    std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
    if (server == nullptr) return internal_error("gRPC did not start");
    address_ = fmt::format("{}:{}", host, acceptor_->port());
    {
      MutexLock lock(mutex_);
      server_ = std::move(server);
      say(serving_);
    }
    update_health();
    acceptor_->run([this](int descriptor) {
      grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
      connection.fd = descriptor;
      connections_->HandleNewConnection(&connection);
    });
    return Status();
  }

  void update_health() override {
    Serving unused;
    MutexLock lock(mutex_);
    const bool serving = !home_->readiness.check(&unused);
    if (server_ == nullptr || serving == serving_) return;
    serving_ = serving;
    say(serving);
  }

  uint16_t port() const override { return acceptor_->port(); }
  std::string address() const override { return address_; }
  size_t calls() const override { return home_->calls(); }
  bool wait_idle(TimePoint deadline) override { return home_->wait_idle(deadline); }

  void stop() override {
    std::unique_ptr<grpc::Server> server;
    {
      MutexLock lock(mutex_);
      server = std::move(server_);
    }
    if (server == nullptr) return;
    acceptor_->stop();
    // Cancels what is left; each call still says its last word on the home's threads.
    server->Shutdown(std::chrono::system_clock::now());
    server->Wait();
    server.reset();
    home_->aside.stop();
    home_->threads.stop();
  }

 private:
  void say(bool serving) REQUIRES(mutex_) {
    grpc::HealthCheckServiceInterface* health = server_->GetHealthCheckService();
    health->SetServingStatus("", serving);
    health->SetServingStatus(service_name_, serving);
  }

  const std::shared_ptr<RpcHome> home_;
  std::unique_ptr<grpc::Service> service_;
  std::string service_name_;
  const std::shared_ptr<grpc::ServerCredentials> credentials_;
  Mutex mutex_;
  std::unique_ptr<grpc::Server> server_ GUARDED_BY(mutex_);
  bool serving_ GUARDED_BY(mutex_) = false;                                      // what health says
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> connections_;  // into the server
  std::unique_ptr<Acceptor> acceptor_;
  std::string address_;
};

}  // namespace

Result<std::unique_ptr<GrpcServer>> GrpcServer::start(const GrpcOptions& options, GrpcRole role,
                                                      const Access& access, Observer& observer,
                                                      const Readiness& readiness,
                                                      const CertificateStore* certificates) {
  auto server =
      std::make_unique<GrpcServerImpl>(options, role, access, observer, readiness, certificates);
  RETURN_IF_ERROR(server->listen());
  return std::unique_ptr<GrpcServer>(std::move(server));
}

}  // namespace deltad
