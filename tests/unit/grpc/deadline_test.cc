// Calls over a real connection, while the engine is in the middle of a step that never ends: what
// ends them must not wait for it.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>

#include "deltad/v1/inference.grpc.pb.h"
#include "tests/unit/grpc/local_server.h"
#include "tests/unit/server/fake_router.h"
#include "tests/unit/server/sample_access.h"

namespace deltad::testing {
namespace {

class StuckEngineTest : public ::testing::Test {
 protected:
  StuckEngineTest() {
    server_ = start_local(GrpcRole::kInference, *access_, observer_, readiness_);
    stub_ = v1::Inference::NewStub(channel_to(*server_));
  }
  void make_ready(double request_seconds) {
    Serving serving;
    serving.router = &router_;
    serving.engine = &engine_;
    serving.request_seconds = request_seconds;
    readiness_.set_ready(serving);
  }
  static v1::GenerateRequest request() {
    v1::GenerateRequest in;
    in.add_prompts()->set_text("abc");
    in.mutable_sampling()->set_n(2);
    in.mutable_sampling()->set_ignore_eos(true);
    return in;
  }
  void expect_both_cancelled() {
    EXPECT_TRUE(server_->wait_idle(Clock::real().now() + std::chrono::seconds(60)));
    EXPECT_EQ(router_.cancelled(), (std::vector<size_t>{0, 1}));
    // The engine's own deadline would free it too, between two steps.
    EXPECT_LT(router_.request(0)->deadline, TimePoint::max());
    for (size_t i = 0; i < 2; ++i) router_.finish(i, FinishReason::kCancelled);
  }

  Observer observer_;
  const std::unique_ptr<Access> access_ = open_access();
  Readiness readiness_{Readiness::Engine::kHealthy};
  FakeRouter router_;
  FakeEngine engine_;
  std::unique_ptr<GrpcServer> server_;
  std::unique_ptr<v1::Inference::Stub> stub_;
};

TEST_F(StuckEngineTest, ADeadlineIsKeptByATimer) {
  make_ready(0.05);  // the client has none of its own, so the status is the server's
  grpc::ClientContext context;
  v1::GenerateResponse out;
  const TimePoint begin = Clock::real().now();
  const grpc::Status status = stub_->Generate(&context, request(), &out);
  RecordProperty("milliseconds", std::to_string(seconds(Clock::real().now() - begin) * 1e3));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  expect_both_cancelled();
}

TEST_F(StuckEngineTest, AStreamToo) {
  make_ready(0.05);
  grpc::ClientContext context;
  v1::GenerateStreamResponse event;
  auto stream = stub_->GenerateStream(&context, request());
  while (stream->Read(&event)) {
  }
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  expect_both_cancelled();
}

TEST_F(StuckEngineTest, TheClientsDeadlineReachesTheEngine) {
  make_ready(0);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(50));
  v1::GenerateResponse out;
  EXPECT_EQ(stub_->Generate(&context, request(), &out).error_code(),
            grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_TRUE(server_->wait_idle(Clock::real().now() + std::chrono::seconds(60)));
  // Else it came before they were submitted.
  if (router_.count() == 2) expect_both_cancelled();
}

// Small requests are read on the calls' threads, large ones beside them.
TEST_F(StuckEngineTest, WorkThatThrowsEndsItsCall) {
  make_ready(0);
  for (const size_t size : {size_t{3}, size_t{100'000}}) {
    v1::GenerateRequest in;
    in.set_model("broken");
    in.add_prompts()->set_text(std::string(size, 'a'));
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    v1::GenerateResponse out;
    EXPECT_EQ(stub_->Generate(&context, in, &out).error_code(), grpc::StatusCode::INTERNAL);
  }
  EXPECT_TRUE(server_->wait_idle(Clock::real().now() + std::chrono::seconds(60)));
}

TEST_F(StuckEngineTest, NotReady) {
  grpc::ClientContext context;
  v1::ListModelsResponse out;
  const grpc::Status status = stub_->ListModels(&context, {}, &out);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(status.error_message(), "The model is being loaded.");
}

TEST_F(StuckEngineTest, StoppingEndsWhatRuns) {
  make_ready(600);
  grpc::ClientContext context;
  v1::GenerateResponse out;
  grpc::Status status;
  std::thread client([&] { status = stub_->Generate(&context, request(), &out); });
  EXPECT_TRUE(router_.wait_submitted(2));
  server_->stop();
  client.join();
  EXPECT_FALSE(status.ok());
  for (size_t i = 0; i < 2; ++i) router_.finish(i, FinishReason::kCancelled);
}

}  // namespace
}  // namespace deltad::testing
