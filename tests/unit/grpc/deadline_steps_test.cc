// A deadline of 50 ms on a long generation, with a real engine whose steps the test holds: the
// status comes in the middle of a step, and the blocks of keys and values are free within two.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "deltad/v1/inference.grpc.pb.h"
#include "engine/threaded_engine.h"
#include "tests/unit/grpc/local_server.h"
#include "tests/unit/server/fake_router.h"
#include "tests/unit/server/sample_access.h"

namespace deltad::testing {
namespace {

constexpr int32_t kBlocks = 64, kBlockTokens = 16;
constexpr int32_t kPrompt = 100;  // tokens, in 7 blocks; those of the other request fit into one

// Where the threads of the test wait for each other: the engine's in a step, until it is let go.
class Stage {
 public:
  void enter_step() EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    inside_ = true;
    changed_.notify_all();
    while (held_) changed_.wait(mutex_);
    inside_ = false;
  }
  // False: the answer came first.
  bool wait_inside() EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    while (!inside_ && !answered_) changed_.wait(mutex_);
    return inside_ && !answered_;
  }
  bool inside() EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return inside_;
  }
  void answered() EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    answered_ = true;
    changed_.notify_all();
  }
  void let_go() EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    held_ = false;
    changed_.notify_all();
  }
  void ended() EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    ended_ = true;
    changed_.notify_all();
  }
  void wait_ended() EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    while (!ended_) changed_.wait(mutex_);
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool held_ GUARDED_BY(mutex_) = true, inside_ GUARDED_BY(mutex_) = false;
  bool answered_ GUARDED_BY(mutex_) = false, ended_ GUARDED_BY(mutex_) = false;
};

// Says "a" again and again.
class HeldModel final : public ModelRunner {
 public:
  explicit HeldModel(std::function<void()> step) : step_(std::move(step)) {}

  Result<Logits> forward(const Batch& batch, const KvView&,
                         std::span<const VariantWeights* const>) override {
    step_();
    const size_t rows = batch.logit_rows.size();
    values_.assign(rows * kVocab, 0);
    for (size_t row = 0; row < rows; ++row) values_[row * kVocab + 'a'] = 10;
    Logits logits;
    logits.vocab.assign(rows, kVocab);
    logits.values =
        matrix_view(values_.data(), DType::kF32, static_cast<int64_t>(rows), kVocab, kVocab);
    return logits;
  }
  int32_t max_slots() const override { return 1; }
  void parallel_for(int64_t n, void (*work)(void* context, int64_t i), void* context) override {
    for (int64_t i = 0; i < n; ++i) work(context, i);
  }

 private:
  const std::function<void()> step_;
  std::vector<float> values_;
};

KvCache make_kv() {
  const KvGeometry geometry{1, kBlocks, kBlockTokens, 16};
  return KvCache(std::move(*Buffer::cpu(static_cast<size_t>(geometry.bytes()))), geometry, true);
}

// False: the machine was too busy to begin a step within the deadline.
bool measure(std::string* milliseconds) {
  Stage stage;
  std::vector<int64_t> used;  // by step: what the engine counts when it begins
  const Engine* counters = nullptr;
  ThreadedEngine engine(std::make_unique<HeldModel>([&] {
                          used.push_back(counters->stats().kv_blocks_used);
                          stage.enter_step();
                        }),
                        make_kv(), SchedulerOptions(), EngineLimits{kVocab, 512, 100});
  counters = &engine;
  Observer observer;
  const std::unique_ptr<Access> access = open_access();
  FakeRouter router;
  FakeEngine sizes;
  Readiness readiness(Readiness::Engine::kHealthy);
  Serving serving;
  serving.router = &router;
  serving.engine = &sizes;
  serving.request_seconds = 0.05;  // the server's, so that the status is not the client's own
  readiness.set_ready(serving);
  const auto server = start_local(GrpcRole::kInference, *access, observer, readiness);

  grpc::Status status;
  std::thread client([&] {
    const auto stub = v1::Inference::NewStub(channel_to(*server));
    v1::GenerateRequest in;
    in.add_prompts()->set_text(std::string(kPrompt, 'x'));
    in.mutable_sampling()->set_max_tokens(300);
    in.mutable_sampling()->set_ignore_eos(true);
    grpc::ClientContext context;
    v1::GenerateResponse out;
    const TimePoint begin = Clock::real().now();
    status = stub->Generate(&context, in, &out);
    *milliseconds = std::to_string(seconds(Clock::real().now() - begin) * 1e3);
    stage.answered();
  });
  // What a router does, without variants.
  EXPECT_TRUE(router.wait_submitted(1));
  Request request = *router.request(0);
  Request other;
  other.prompt = {'a'};
  other.max_tokens = 12;
  other.deadline = TimePoint::max();
  other.on_event = [](const TokenEvent&) {};
  request.on_event = [&stage, inner = request.on_event](const TokenEvent& event) {
    inner(event);
    if (event.kind == TokenEvent::Kind::kFinished) stage.ended();
  };
  // Only what the call does about it counts here, not that the engine looks, too.
  request.deadline = TimePoint::max();
  const auto handle = engine.submit(std::move(request));
  EXPECT_TRUE(handle.ok() && engine.submit(std::move(other)).ok());
  const bool in_time = stage.wait_inside();
  client.join();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED) << status.error_message();
  EXPECT_TRUE(router.wait_cancelled(1));
  EXPECT_TRUE(!in_time || stage.inside()) << "the status came after the step";
  const size_t at_status = in_time ? used.size() : 0;  // steps begun; the last of them is held
  engine.cancel(*handle);
  stage.let_go();
  stage.wait_ended();
  engine.shutdown(TimePoint::max());  // the other one has ended
  server->stop();
  router.request(0)->on_event = nullptr;
  EXPECT_EQ(engine.stats().kv_blocks_used, 0);
  if (!in_time) return false;
  EXPECT_GE(used.size(), at_status + 2);
  EXPECT_GT(used.at(at_status), kPrompt / kBlockTokens);  // they were held in that step …
  EXPECT_LE(used.at(at_status + 1), 1);                   // … and not after the next
  return true;
}

TEST(DeadlineSteps, TheStatusComesWithinAStepAndBlocksAreFreeWithinTwo) {
  std::string milliseconds;
  int tries = 20;
  while (!measure(&milliseconds) && --tries > 0) {
  }
  EXPECT_GT(tries, 0) << "no step began within 50 ms";
  RecordProperty("milliseconds", milliseconds);
}

}  // namespace
}  // namespace deltad::testing
