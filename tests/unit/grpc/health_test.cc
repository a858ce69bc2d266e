// grpc.health.v1 says what readiness says, also when that changes by itself.
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <string>
#include <utility>

#include "tests/unit/grpc/local_server.h"
#include "tests/unit/server/fake_router.h"
#include "tests/unit/server/sample_access.h"

namespace deltad::testing {
namespace {

constexpr char kServing = 1, kNotServing = 2;

class HealthTest : public ::testing::Test {
 protected:
  HealthTest() {
    server_ = start_local(GrpcRole::kInference, *access_, observer_, readiness_);
    channel_ = channel_to(*server_);
    serving_.router = &router_;
    serving_.engine = &engine_;
  }

  // The answer's status; 0: there is no such service.
  char status(const std::string& service) {
    grpc::GenericStub stub(channel_);
    grpc::ClientContext context;
    // Field 1, a string.
    const std::string bytes =
        service.empty() ? "" : std::string("\x0a") + static_cast<char>(service.size()) + service;
    const grpc::Slice slice(bytes);
    grpc::ByteBuffer in(&slice, 1), out;
    std::promise<grpc::Status> done;
    stub.UnaryCall(&context, "/grpc.health.v1.Health/Check", {}, &in, &out,
                   [&done](grpc::Status s) { done.set_value(std::move(s)); });
    if (!done.get_future().get().ok()) return 0;
    grpc::Slice answer;
    if (!out.TrySingleSlice(&answer).ok() || answer.size() != 2) return 0;
    return static_cast<char>(answer.begin()[1]);  // field 1, a small number
  }

  Observer observer_;
  const std::unique_ptr<Access> access_ = open_access();
  Readiness readiness_{Readiness::Engine::kHealthy};
  FakeRouter router_;
  FakeEngine engine_;
  Serving serving_;
  std::unique_ptr<GrpcServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
};

TEST_F(HealthTest, FollowsReadiness) {
  const auto expect = [this](char wanted) {
    server_->update_health();
    EXPECT_EQ(status(""), wanted);
    EXPECT_EQ(status("deltad.v1.Inference"), wanted);
    EXPECT_EQ(status("deltad.v1.Admin"), 0);
  };
  EXPECT_EQ(status("deltad.v1.Inference"), kNotServing);  // before anybody asks for more
  expect(kNotServing);
  readiness_.set_loaded(serving_, "Pinned variants are being loaded: math.");
  expect(kNotServing);
  readiness_.set_ready(serving_);
  expect(kServing);
  engine_.is_healthy = false;  // a step hangs
  expect(kNotServing);
  engine_.is_healthy = true;
  expect(kServing);
  readiness_.close("The server is shutting down.");
  expect(kNotServing);
  readiness_.set_loaded(serving_, "Pinned variants are being loaded: math.");
  readiness_.set_ready(serving_);  // a signal to stop came just before the model was there
  expect(kNotServing);
  server_->stop();
  server_->update_health();  // the heartbeat goes on a little
}

}  // namespace
}  // namespace deltad::testing
