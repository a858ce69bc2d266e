// A stream of reflection takes a thread; a client that says nothing does not keep it.
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <memory>

#include "tests/unit/grpc/local_server.h"
#include "tests/unit/server/sample_access.h"

namespace deltad::testing {
namespace {

TEST(Reflection, AStreamEndsByItself) {
  Observer observer;
  const auto access = open_access();
  const Readiness readiness(Readiness::Engine::kAny);
  GrpcOptions options = local_options();
  options.reflection_time = std::chrono::milliseconds(20);
  const auto server = start_local(GrpcRole::kAdmin, *access, observer, readiness, options);
  grpc::GenericStub stub(channel_to(*server));
  grpc::CompletionQueue queue;
  grpc::ClientContext context;
  const auto stream = stub.PrepareCall(
      &context, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", &queue);
  int started = 0, read = 0, ended = 0;
  stream->StartCall(&started);
  void* tag = nullptr;
  bool ok = false;
  ASSERT_TRUE(queue.Next(&tag, &ok) && tag == &started && ok);
  grpc::Status status;
  grpc::ByteBuffer answer;
  stream->Read(&answer, &read);
  const auto deadline = std::chrono::system_clock::now() + std::chrono::seconds(60);
  ASSERT_EQ(queue.AsyncNext(&tag, &ok, deadline), grpc::CompletionQueue::GOT_EVENT);
  EXPECT_FALSE(ok);  // nothing was asked, and it is over
  stream->Finish(&status, &ended);
  ASSERT_TRUE(queue.Next(&tag, &ok));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::CANCELLED);
}

}  // namespace
}  // namespace deltad::testing
