// Every gRPC method × no key, wrong key, a key without the right, a right key, an admin key. The
// methods come from the services' descriptors, so that one for which nothing was decided fails
// here.
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <future>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "deltad/v1/admin.grpc.pb.h"
#include "deltad/v1/inference.grpc.pb.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "server/grpc/methods.h"
#include "tests/support/temp_folder.h"
#include "tests/unit/grpc/local_server.h"
#include "tests/unit/server/fake_router.h"
#include "tests/unit/server/sample_access.h"

namespace deltad::testing {
namespace {

using grpc::StatusCode;

constexpr const char* kKeys[] = {"", "wrong", "user", "operator", "both", "ended"};

std::string key_line(const std::string& key, const std::string& rules) {
  return "  - {name: " + key + ", sha256: " + hash_text(hash_key(key)) + rules + "}\n";
}

StatusCode expected(Need need, const std::string& key) {
  if (need == Need::kNothing) return StatusCode::OK;
  if (key.empty() || key == "wrong" || key == "ended") return StatusCode::UNAUTHENTICATED;
  if (key == "both") return StatusCode::OK;
  const bool right = need == Need::kInference ? key == "user" : key == "operator";
  return right ? StatusCode::OK : StatusCode::PERMISSION_DENIED;
}

class MethodAccessTest : public ::testing::Test {
 protected:
  MethodAccessTest() {
    // Any model; the admin API only; both; one that has ended; one model, one request at a time and
    // few tokens.
    AccessOptions options;
    options.keys_file = folder_.write(
        "keys.yaml", "keys:\n" + key_line("user", "") +
                         key_line("operator", ", admin: true, models: []") +
                         key_line("both", ", admin: true") +
                         key_line("ended", ", admin: true, expires: 2000-01-01") +
                         key_line("scoped", ", models: ['org/*'], parallel_requests: 1"));
    access_ = std::move(*Access::make(options));
    serving_.router = &router_;
    serving_.engine = &engine_;
    readiness_.set_ready(serving_);
  }

  void start(GrpcRole role) {
    server_ = start_local(role, *access_, observer_, readiness_);
    channel_ = channel_to(*server_);
  }

  static void add_key(grpc::ClientContext& context, const std::string& key) {
    if (!key.empty()) context.AddMetadata("authorization", "Bearer " + key);
  }

  // With an empty request.
  grpc::Status call(const std::string& method, const std::string& key) {
    grpc::GenericStub stub(channel_);
    grpc::ClientContext context;
    add_key(context, key);
    grpc::ByteBuffer in(nullptr, 0), out;
    std::promise<grpc::Status> status;
    stub.UnaryCall(&context, method, {}, &in, &out,
                   [&status](grpc::Status s) { status.set_value(std::move(s)); });
    return status.get_future().get();
  }

  void check(const google::protobuf::ServiceDescriptor& service, Need least) {
    for (int i = 0; i < service.method_count(); ++i) {
      const auto& method = *service.method(i);
      const std::optional<Need> need = need_of(method);
      ASSERT_TRUE(need.has_value()) << method.full_name() << ": what does it ask of its caller?";
      EXPECT_EQ(*need, least) << method.full_name();
      for (const std::string key : kKeys) {
        const StatusCode code =
            call("/" + service.full_name() + "/" + method.name(), key).error_code();
        EXPECT_NE(code, StatusCode::UNIMPLEMENTED) << method.full_name();
        const bool refusal =
            code == StatusCode::UNAUTHENTICATED || code == StatusCode::PERMISSION_DENIED;
        EXPECT_EQ(refusal ? code : StatusCode::OK, expected(*need, key))
            << method.full_name() << " with '" << key << "'";
      }
    }
  }

  TempFolder folder_;
  std::unique_ptr<Access> access_;
  Observer observer_;
  FakeRouter router_;
  FakeEngine engine_;
  Serving serving_;
  Readiness readiness_{Readiness::Engine::kHealthy};
  std::unique_ptr<GrpcServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
};

TEST_F(MethodAccessTest, EveryMethodOfInference) {
  start(GrpcRole::kInference);
  const auto& file = *v1::GenerateRequest::descriptor()->file();
  ASSERT_EQ(file.service_count(), 1);
  check(*file.service(0), Need::kInference);
}

TEST_F(MethodAccessTest, EveryMethodOfAdmin) {
  start(GrpcRole::kAdmin);
  const auto& file = *v1::GetCacheRequest::descriptor()->file();
  ASSERT_EQ(file.service_count(), 1);
  check(*file.service(0), Need::kAdmin);
}

TEST_F(MethodAccessTest, NothingIsKnownThatIsNot) {
  size_t methods = 0;
  for (const auto* file :
       {v1::GenerateRequest::descriptor()->file(), v1::GetCacheRequest::descriptor()->file()})
    methods += static_cast<size_t>(file->service(0)->method_count());
  EXPECT_EQ(std::size(kMethods), methods);
}

TEST_F(MethodAccessTest, HealthNeedsNoKeyAndEachRoleIsAloneOnItsListener) {
  start(GrpcRole::kInference);
  EXPECT_TRUE(call("/grpc.health.v1.Health/Check", "").ok());
  EXPECT_EQ(call("/deltad.v1.Admin/GetCache", "both").error_code(), StatusCode::UNIMPLEMENTED);
}

// What a key may use is all that it hears of.
TEST_F(MethodAccessTest, ModelsOutsideTheScopeAreNotNamed) {
  start(GrpcRole::kInference);
  const auto stub = v1::Inference::NewStub(channel_);
  v1::ListModelsResponse models;
  grpc::ClientContext listing;
  add_key(listing, "scoped");
  ASSERT_TRUE(stub->ListModels(&listing, {}, &models).ok());
  ASSERT_EQ(models.models_size(), 1);
  EXPECT_EQ(models.models(0).id(), "org/poet");
  for (const std::string model : {"math", "base", "none", ""}) {
    const auto refused = [&](const grpc::Status& status) {
      EXPECT_EQ(status.error_code(), StatusCode::PERMISSION_DENIED) << model;
      EXPECT_EQ(status.error_message().find("math"), std::string::npos);
    };
    v1::GenerateRequest generate;
    generate.set_model(model);
    generate.add_prompts()->set_text("x");
    v1::GenerateResponse generated;
    grpc::ClientContext first, second, third;
    for (auto* context : {&first, &second, &third}) add_key(*context, "scoped");
    refused(stub->Generate(&first, generate, &generated));
    v1::TokenizeRequest tokenize;
    tokenize.set_model(model);
    tokenize.set_prompt("x");
    v1::TokenizeResponse tokens;
    refused(stub->Tokenize(&second, tokenize, &tokens));
    v1::DetokenizeRequest detokenize;
    detokenize.set_model(model);
    v1::DetokenizeResponse text;
    refused(stub->Detokenize(&third, detokenize, &text));
  }
}

TEST_F(MethodAccessTest, AKeysLimitsHoldAndSayWhenToTryAgain) {
  start(GrpcRole::kInference);
  const auto stub = v1::Inference::NewStub(channel_);
  v1::GenerateRequest in;
  in.set_model("org/poet");
  in.add_prompts()->set_text("x");
  const auto generate = [&](grpc::Status* status) {
    grpc::ClientContext context;
    add_key(context, "scoped");
    v1::GenerateResponse out;
    *status = stub->Generate(&context, in, &out);
  };
  grpc::Status first, second;
  std::thread client([&] { generate(&first); });
  ASSERT_TRUE(router_.wait_submitted(1));
  generate(&second);
  EXPECT_EQ(second.error_code(), StatusCode::RESOURCE_EXHAUSTED);
  google::rpc::Status details;
  ASSERT_TRUE(details.ParseFromString(second.error_details()));
  ASSERT_EQ(details.details_size(), 2);
  google::rpc::RetryInfo retry;
  ASSERT_TRUE(details.details(1).UnpackTo(&retry));
  EXPECT_EQ(retry.retry_delay().seconds(), 1);
  // Who has its answer may call again.
  for (size_t i = 0; i < 20; ++i) {
    ASSERT_TRUE(router_.wait_submitted(i + 1));
    router_.text(i, "a");
    router_.finish(i, FinishReason::kStop);
    client.join();
    EXPECT_TRUE(first.ok()) << first.error_message();
    client = std::thread([&] { generate(&first); });
  }
  ASSERT_TRUE(router_.wait_submitted(21));
  router_.finish(20, FinishReason::kStop);
  client.join();
}

}  // namespace
}  // namespace deltad::testing
