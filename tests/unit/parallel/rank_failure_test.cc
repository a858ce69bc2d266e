// A rank that fails or stalls in the middle of a step: the step ends with an error that names it,
// so does every later one, and the engine says that it is not healthy. Injected where ranks talk to
// each other.
#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <thread>

#include "engine/engine.h"
#include "parallel/thread_communicator.h"
#include "tests/support/random_model.h"
#include "tests/unit/engine/recorder.h"
#include "tests/unit/parallel/stepper.h"

namespace deltad {
namespace {

using testing::Record;

constexpr int kRanks = 4, kBad = 2;

// What happens to a rank at a call of all_reduce: before it, and after it.
struct Fault {
  std::function<Status(int call)> before = [](int) { return Status(); };
  std::function<void(int call)> after = [](int) {};
};

class FaultyCommunicator final : public Communicator {
 public:
  FaultyCommunicator(std::unique_ptr<Communicator> inner, const Fault& fault)
      : inner_(std::move(inner)), fault_(fault) {}
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  Status all_reduce(TensorView out, TensorView part, Epilogue epilogue) override {
    const int call = ++calls_;
    RETURN_IF_ERROR(fault_.before(call));
    const Status status = inner_->all_reduce(out, part, epilogue);
    fault_.after(call);
    return status;
  }
  Status settle() override { return inner_->settle(); }
  void fail(const Status& why) override { inner_->fail(why); }
  Status status() const override { return inner_->status(); }

 private:
  const std::unique_ptr<Communicator> inner_;
  const Fault& fault_;
  int calls_ = 0;
};

class RankFailure : public ::testing::Test {
 protected:
  // A model whose rank kBad has the fault.
  void start(const Fault& fault, Duration patience) {
    testing::write_random_model(folder_, testing::even_model(), 1);
    base_ = std::make_unique<BaseModel>();
    base_->checkpoint = std::move(*Checkpoint::open(folder_.path()));
    base_->table = make_weight_table(base_->config());
    std::vector<std::unique_ptr<Backend>> backends;
    for (int r = 0; r < kRanks; ++r)
      backends.push_back(std::move(*make_cpu_backend({1, false, "scalar"})));
    auto communicators = make_thread_communicators(kRanks, patience);
    communicators[kBad] =
        std::make_unique<FaultyCommunicator>(std::move(communicators[kBad]), fault);
    auto made =
        ParallelBackend::make(base_->config(), std::move(backends), std::move(communicators));
    ASSERT_TRUE(made.ok()) << made.status().message();
    base_->parallel = std::move(*made);
    ASSERT_TRUE(load_base(*base_->checkpoint, base_->table, *base_->parallel, 1, nullptr).ok());
    testing::write_random_delta(folder_.file("v.delta.safetensors"), base_->config(), {}, 2);
    variant_ = testing::load_variant_of(*base_, folder_.file("v.delta.safetensors"));
    ASSERT_NE(variant_, nullptr);
    auto transformer =
        ParallelTransformer::make(base_->config(), *base_->parallel, patience, 16, 64);
    ASSERT_TRUE(transformer.ok());
    transformer_ = std::move(*transformer);
    ASSERT_TRUE(transformer_->allocate_kv(4, 16).ok());
  }
  // One row of the variant.
  Status step(int32_t position) {
    const int32_t blocks[] = {1, 0};
    Batch batch;
    batch.ids = {7};
    batch.groups = {{0, 1, 0}};
    batch.spans = {{0, 1, position, blocks}};
    batch.logit_rows = {0};
    const std::vector<const VariantWeights*> slots = {variant_->weights.get()};
    return transformer_->forward(batch, slots).status();
  }

  testing::TempFolder folder_;
  std::unique_ptr<BaseModel> base_;
  VariantRef variant_;
  std::unique_ptr<ParallelTransformer> transformer_;
};

// A step of this model has five sums: of the embeddings, and two in each of two layers.
TEST_F(RankFailure, EndsTheStepAndEveryLaterOne) {
  Fault fault;
  fault.before = [](int call) {
    return call == 7 ? internal_error("the device has fallen off the bus") : Status();
  };
  start(fault, std::chrono::seconds(600));
  ASSERT_TRUE(step(0).ok());
  EXPECT_TRUE(base_->parallel->health().ok());
  const std::string expected = "rank 2 of 4: the device has fallen off the bus";
  EXPECT_EQ(step(1).message(), expected);
  EXPECT_EQ(base_->parallel->health().message(), expected);
  EXPECT_EQ(step(1).message(), expected);
}

// A rank that stalls until it is released, while the others are given their error. What it works on
// is let go meanwhile: the variant's request has ended.
class RankStall : public RankFailure {
 protected:
  void check(const Fault& fault, const std::string& expected) {
    start(fault, std::chrono::milliseconds(100));
    ASSERT_TRUE(step(0).ok());
    EXPECT_EQ(step(1).message(), expected);
    EXPECT_EQ(base_->parallel->health().message(), expected);
    variant_.reset();
    release_.set_value();
    transformer_.reset();  // the rank's thread ends well
  }

  std::promise<void> release_;
  const std::shared_future<void> released_ = release_.get_future().share();
};

TEST_F(RankStall, InTheMiddleOfAStep) {
  Fault fault;
  fault.before = [this](int call) {
    if (call == 7) released_.wait();
    return Status();
  };
  check(fault, "rank 2 of 4: the others have waited for it for 0.1 s");
}

TEST_F(RankStall, AfterTheLastSumOfAStep) {
  Fault fault;
  fault.after = [this](int call) {
    if (call == 10) released_.wait();
  };
  check(fault, "rank 2 of 4: it has not ended its step 0.1 s after the first one");
}

TEST_F(RankFailure, MakesTheEngineUnhealthy) {
  Fault fault;
  fault.before = [](int call) { return call == 6 ? resource_exhausted("no memory") : Status(); };
  start(fault, std::chrono::seconds(600));
  transformer_.reset();
  EngineOptions options;
  options.kv_bytes = 1 << 20;
  auto engine = Engine::make(*base_, options);
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  EXPECT_TRUE((*engine)->healthy());
  EXPECT_TRUE((*engine)->device_health().ok());
  const auto record = std::make_shared<Record>();
  Request request = testing::make_request({1, 2, 3}, 8, record);
  request.variant = variant_;
  ASSERT_TRUE((*engine)->submit(std::move(request)).ok());
  (*engine)->shutdown(TimePoint::max());
  EXPECT_EQ(record->end.reason, FinishReason::kError);
  EXPECT_EQ(record->tokens.size(), 1u);
  EXPECT_EQ(record->end.status.message(), "rank 2 of 4: no memory");
  EXPECT_FALSE((*engine)->healthy());
  EXPECT_EQ((*engine)->device_health().message(), "rank 2 of 4: no memory");
}

}  // namespace
}  // namespace deltad
