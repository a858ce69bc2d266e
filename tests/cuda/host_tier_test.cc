// Variants that leave the device for the host's pinned memory and come back: the same to the bit,
// by copies alone, accounted to the byte, on one GPU and on several. What fails, is given up or
// hangs on the way is told in request_life.h's tests of failures and below.
#include "backend/cuda/host_tier.h"

#include <cuda_runtime_api.h>
#include <gmock/gmock.h>

#include "tests/cuda/emulated_world.h"
#include "tests/support/random_model.h"
#include "tests/unit/parallel/close_rows.h"
#include "tests/unit/parallel/stepper.h"

namespace deltad {
namespace {

using ::testing::HasSubstr;
using testing::load_variant_of;

const std::atomic<bool> kGoOn{false};

class HostPools : public testing::EmulatedGpuTest {
 protected:
  void SetUp() override {
    testing::EmulatedGpuTest::SetUp();
    device_ = std::move(*CudaDevice::open(0));
  }
  void TearDown() override {
    pool_ = nullptr;
    device_ = nullptr;
    testing::EmulatedGpuTest::TearDown();
  }
  void add(size_t bytes, const void* owner) {
    pool_->add(std::move(*PinnedMemory::make(*device_, bytes, "a test")), owner);
  }
  static std::vector<size_t> sizes(const HostPool::Pieces& pieces) {
    std::vector<size_t> out;
    for (const auto& piece : pieces.all()) out.push_back(piece.bytes);
    return out;
  }
  HostPool::Pieces take(size_t bytes, const void* owner = nullptr) {
    auto taken = pool_->take(bytes, owner);
    EXPECT_TRUE(taken.ok()) << taken.status().message();
    return taken.ok() ? std::move(*taken) : HostPool::Pieces();
  }

  std::unique_ptr<CudaDevice> device_;
  std::shared_ptr<HostPool> pool_ = std::make_shared<HostPool>();
};

TEST_F(HostPools, GiveOutAllThatIsFreeInAsManyPiecesAsItTakes) {
  add(1000, nullptr);
  auto a = take(300), b = take(300), c = take(300);
  EXPECT_EQ(pool_->used(), 900u);
  EXPECT_FALSE(pool_->take(101, nullptr).ok());
  b = {};
  // 300 in the middle and 100 at the end.
  auto d = take(350);
  EXPECT_EQ(sizes(d), (std::vector<size_t>{300, 50}));
  auto e = take(50);
  EXPECT_EQ(pool_->used(), 1000u);
  EXPECT_EQ(pool_->take(1, nullptr).status().code(), Code::kResourceExhausted);
  // Gaps that touch become one, whatever the order.
  a = {};
  c = {};
  d = {};
  e = {};
  EXPECT_EQ(sizes(take(1000)), std::vector<size_t>{1000});
  EXPECT_EQ(pool_->used(), 0u);
}

TEST_F(HostPools, ServeEachOwnerFromItsOwnPartFirst) {
  const int one = 1, two = 2;
  add(100, &one);
  add(100, &two);
  const auto of_two = take(60, &two), of_one = take(60, &one);
  const std::byte* second = of_two.all()[0].data;
  EXPECT_NE(of_one.all()[0].data, second);
  const auto more = take(60, &two);  // 40 of its own, the rest of the other's
  EXPECT_EQ(sizes(more), (std::vector<size_t>{40, 20}));
  EXPECT_EQ(more.all()[0].data, second + 60);
}

TEST_F(HostPools, KeepWhatAHungDeviceMayWriteTo) {
  add(100, nullptr);
  auto lost = take(60);
  lost.abandon();
  lost = {};
  EXPECT_EQ(pool_->used(), 60u);
}

// A model of one or several GPUs with variants of every kind.
class HostTiers : public ::testing::TestWithParam<int> {
 protected:
  static emulated_gpu::Options options(emulated_gpu::Order order = emulated_gpu::Order::kLatest) {
    emulated_gpu::Options options;
    options.devices = GetParam();
    options.order = order;
    options.site_frames = 1;
    return options;
  }
  void SetUp() override {
    emulated_gpu::reset(options());
    const ModelConfig config = testing::even_model();
    testing::write_random_model(folder_, config, 1);
    testing::write_random_delta(folder_.file("signs"), config, {2, true, false, 0}, 2);
    // The embeddings are its own, and the tied head follows them.
    testing::write_random_delta(folder_.file("all"), config, {1, false, true, 21}, 3);
    testing::write_random_lora(lora_, config, 4, 4);
    paths_ = {folder_.file("signs"), folder_.file("all"), lora_.path()};
  }
  void TearDown() override {
    base_.reset();
    EXPECT_EQ(emulated_gpu::report(), "");
    EXPECT_EQ(emulated_gpu::leaks(), "");
    EXPECT_EQ(emulated_gpu::pinned_bytes(), 0u);
    emulated_gpu::reset();
  }
  void start(Duration patience = std::chrono::seconds(600)) {
    Result<std::unique_ptr<BaseModel>> base = unimplemented("");
    CudaBackendOptions one{0, 1, patience};
    base = GetParam() > 1
               ? load_base_model(folder_.path(), testing::make_ranks(GetParam(), patience), nullptr)
               : load_base_model(folder_.path(), std::move(*make_cuda_backend(one)), nullptr);
    ASSERT_TRUE(base.ok()) << base.status().message();
    base_ = std::move(*base);
  }
  WeightStore& store() { return base_->weights(); }
  void reserve(size_t bytes) {
    const size_t before = emulated_gpu::pinned_bytes();
    const auto taken = store().reserve_host(bytes);
    ASSERT_TRUE(taken.ok()) << taken.status().message();
    EXPECT_LE(*taken, bytes);
    EXPECT_GT(*taken + 4096 * static_cast<size_t>(GetParam()), bytes);
    EXPECT_EQ(emulated_gpu::pinned_bytes(), before + *taken);
  }
  // A pool that holds so many copies of this variant and no byte more than a page a rank.
  void reserve_for(const Variant& variant, size_t copies) {
    const size_t pages = 4096 * static_cast<size_t>(GetParam());
    reserve((copies * variant.bytes + pages - 1) / pages * pages);
  }
  size_t allocated() const {
    size_t bytes = 0;
    for (int gpu = 0; gpu < GetParam(); ++gpu) bytes += emulated_gpu::allocated_bytes(gpu);
    return bytes;
  }
  Result<VariantRef> restore(const VariantRef& copy) {
    return restore_variant(*copy, store(), kGoOn);
  }

  testing::TempFolder folder_, lora_;
  std::vector<std::string> paths_;
  std::unique_ptr<BaseModel> base_;
};
INSTANTIATE_TEST_SUITE_P(Gpus, HostTiers, ::testing::Values(1, 2, 4));

TEST_P(HostTiers, GiveBackTheSameVariantsByCopiesAlone) {
  start();
  reserve(16 << 20);
  std::vector<VariantRef> variants;
  for (const std::string& path : paths_) variants.push_back(load_variant_of(*base_, path));
  const testing::Rows expected = testing::run_mixed(*base_, variants, 3);
  const size_t held = allocated();

  std::vector<VariantRef> copies;
  for (VariantRef& variant : variants) {
    const auto copy = copy_to_host(*variant);
    ASSERT_TRUE(copy.ok()) << copy.status().message();
    copies.push_back(*copy);
    EXPECT_EQ(copies.back()->weights, nullptr);
    EXPECT_EQ(copies.back()->image->bytes(), variant->bytes);
    EXPECT_EQ(copies.back()->digest, variant->digest);
    const size_t before = allocated();
    const size_t bytes = variant->bytes;
    variant = nullptr;
    EXPECT_EQ(allocated(), before - bytes);
  }
  // In another order, so that each lies elsewhere than before.
  const size_t launches = emulated_gpu::launches().size();
  for (const size_t i : {2u, 0u, 1u}) {
    const size_t before = allocated();
    const auto back = restore(copies[i]);
    ASSERT_TRUE(back.ok()) << back.status().message();
    EXPECT_EQ(allocated(), before + copies[i]->bytes);
    variants[i] = *back;
    copies[i] = nullptr;
  }
  EXPECT_EQ(emulated_gpu::launches().size(), launches) << "something was computed";
  EXPECT_EQ(allocated(), held);
  EXPECT_EQ(testing::run_mixed(*base_, variants, 3), expected);
}

// Copies in pieces: between others that have gone.
TEST_P(HostTiers, KeepVariantsInTheGapsThatOthersLeft) {
  start();
  const VariantRef small = load_variant_of(*base_, paths_[2]),
                   large = load_variant_of(*base_, paths_[0]);
  const size_t n = large->bytes / small->bytes + 1;
  reserve_for(*small, 2 * n);
  std::vector<VariantRef> kept(2 * n);
  for (VariantRef& copy : kept) copy = *copy_to_host(*small);
  EXPECT_EQ(copy_to_host(*small).status().code(), Code::kResourceExhausted);
  for (size_t i = 0; i < kept.size(); i += 2) kept[i] = nullptr;
  const testing::Rows expected = testing::run_mixed(*base_, {large}, 2);
  const VariantRef copy = *copy_to_host(*large);
  const auto back = restore(copy);
  ASSERT_TRUE(back.ok()) << back.status().message();
  EXPECT_EQ(testing::run_mixed(*base_, {*back}, 2), expected);
  EXPECT_TRUE(restore(kept[1]).ok());
}

TEST_P(HostTiers, LeaveNothingOfAReturnThatIsGivenUp) {
  start();
  VariantRef variant = load_variant_of(*base_, paths_[1]);
  reserve_for(*variant, 1);
  const VariantRef copy = *copy_to_host(*variant);
  variant = nullptr;
  const size_t before = allocated();
  const std::atomic<bool> given_up{true};
  EXPECT_EQ(restore_variant(*copy, store(), given_up).status().code(), Code::kCancelled);
  EXPECT_EQ(allocated(), before);
  EXPECT_TRUE(restore(copy).ok());
}

TEST_P(HostTiers, HaveWhatSomeOfTheRanksGot) {
  if (GetParam() == 1) return;
  start();
  const int bad = GetParam() - 1;
  size_t taken = 0;
  for (const auto& call : emulated_gpu::calls())
    taken += call.device == bad && call.name == "cudaHostAlloc" ? 1 : 0;
  emulated_gpu::inject(
      {.call = taken, .error = cudaErrorMemoryAllocation, .device = bad, .name = "cudaHostAlloc"});
  const size_t before = emulated_gpu::pinned_bytes();
  const size_t all = size_t{8} << 20, each = all / static_cast<size_t>(GetParam());
  const auto got = store().reserve_host(all);
  ASSERT_TRUE(got.ok()) << got.status().message();
  EXPECT_EQ(*got, all - each);
  EXPECT_EQ(emulated_gpu::pinned_bytes() - before, *got);
  // For all ranks, the one without its own among them.
  const VariantRef variant = load_variant_of(*base_, paths_[0]);
  auto copy = copy_to_host(*variant);
  EXPECT_TRUE(copy.ok()) << copy.status().message();
  // A copy that nobody could tell to be current is none.
  Variant unknown = *variant;
  unknown.stamp = {};
  EXPECT_THAT(copy_to_host(unknown).status().message(), HasSubstr("could not be looked at"));
}

// Of a GPU that hangs in a load, in a copy to the host or in one back: within a second each ends
// with an error that names it, and so does whatever comes after.
TEST_P(HostTiers, NameTheGpuThatHangs) {
  const int bad = GetParam() - 1;
  for (const int kind : {0, 1, 2}) {
    SCOPED_TRACE(kind);
    emulated_gpu::reset(options());
    start(std::chrono::seconds(1));
    reserve(8 << 20);
    VariantRef variant = load_variant_of(*base_, paths_[0]);
    VariantRef copy = *copy_to_host(*variant);
    const auto work = [&]() -> Status {
      if (kind == 0) return load_variant("v", paths_[0], base_->table, store(), {}).status();
      return kind == 1 ? copy_to_host(*variant).status() : restore(copy).status();
    };
    ASSERT_TRUE(work().ok());
    // All work that it is given from now on.
    size_t calls = 0;
    for (const auto& call : emulated_gpu::calls()) calls += call.device == bad ? 1 : 0;
    for (size_t call = calls; call < calls + 200; ++call)
      emulated_gpu::inject({.call = call, .error = 0, .hangs = true, .device = bad});
    const Status status = work();
    EXPECT_EQ(status.code(), Code::kUnavailable);
    EXPECT_THAT(status.message(), HasSubstr("GPU " + std::to_string(bad) + " has failed"));
    const Status health = GetParam() > 1 ? base_->parallel->health() : base_->backend->health();
    EXPECT_THAT(health.message(), HasSubstr("GPU " + std::to_string(bad) + " has failed"));
    EXPECT_FALSE(work().ok());
    emulated_gpu::let_go();
    ASSERT_EQ(cudaSetDevice(bad), cudaSuccess);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    variant = copy = nullptr;
    base_.reset();
    EXPECT_EQ(emulated_gpu::report(), "");
  }
}

}  // namespace
}  // namespace deltad
