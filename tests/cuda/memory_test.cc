// What the backend says that it takes of the device is what it takes, to the byte.
#include <cuda_runtime_api.h>

#include "backend/cuda/cuda_ops.h"
#include "tests/cuda/gpu_life.h"

namespace deltad {
namespace {

class CudaMemory : public testing::EmulatedGpuTest {
 protected:
  // Memory that was given back in the order of a stream is back once it is waited for.
  void expect_accounted(testing::GpuLife& life, const char* when) {
    const float nothing = 0;
    Buffer small = std::move(*life.backend()->allocate(sizeof nothing));
    ASSERT_TRUE(life.backend()->upload(small.data(), &nothing, sizeof nothing).ok());
    small = Buffer();
    EXPECT_EQ(emulated_gpu::allocated_bytes(), life.accounted()) << when;
  }
};

TEST_F(CudaMemory, IsAccountedToTheByte) {
  testing::GpuLife life;
  ASSERT_TRUE(life.begin().ok());
  expect_accounted(life, "the base is loaded");
  ASSERT_TRUE(life.enter(0, testing::kTwoLevels).ok());
  expect_accounted(life, "a variant is loaded");
  ASSERT_TRUE(life.prompt(0, 2, true).ok());
  expect_accounted(life, "after a prompt");
  ASSERT_TRUE(life.enter(1, testing::kLowRank).ok());
  ASSERT_TRUE(life.prompt(2, 1, true).ok());
  ASSERT_TRUE(life.generate(3, 3).ok());
  const auto& ops = static_cast<const CudaOps&>(life.backend()->ops());
  EXPECT_GT(ops.replayed_steps(), 0);
  expect_accounted(life, "after steps with two variants, some of them graphs");
  ASSERT_TRUE(life.sample(6).ok());
  expect_accounted(life, "after a step whose tokens the device chose");
  life.leave(0);
  life.leave(1);
  ASSERT_TRUE(life.generate(7, 1).ok());
  expect_accounted(life, "without variants");
}

// What CUDA's pool keeps for the next variant is free for all else.
TEST_F(CudaMemory, ThatThePoolKeepsIsFreeForAllElse) {
  constexpr size_t kRoom = 8 << 20;
  emulated_gpu::Options options;
  options.memory_bytes = 64 << 20;
  emulated_gpu::reset(options);
  auto backend = make_cuda_backend({0, 1});
  ASSERT_TRUE(backend.ok()) << backend.status().message();
  const int64_t before = *(*backend)->device_free_bytes();
  auto device = std::move(*CudaDevice::open(0));
  const auto come_and_go = [&](size_t bytes) {
    return DeviceMemory::make(*device, device->load(), bytes, "a test").status();
  };
  const auto all = static_cast<size_t>(before);
  ASSERT_TRUE(come_and_go(all - kRoom).ok());
  // Kept, and counted as free.
  size_t free = 0, total = 0;
  ASSERT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  EXPECT_EQ(free, kRoom);
  EXPECT_EQ(*(*backend)->device_free_bytes(), before);
  const size_t calls = emulated_gpu::call_count();
  ASSERT_TRUE(come_and_go(all - kRoom).ok());
  for (size_t k = calls; k < emulated_gpu::call_count(); ++k)
    EXPECT_NE(emulated_gpu::calls()[k].name, "cudaMemPoolTrimTo");
  // Although nobody has looked whether the stream of loads got to what was given back.
  void* large = nullptr;
  const Status taken = device->allocate(&large, 2 * kRoom, "a test");
  ASSERT_TRUE(taken.ok()) << taken.message();
  ASSERT_EQ(cudaFree(large), cudaSuccess);
  ASSERT_TRUE(come_and_go(all - kRoom).ok());
  ASSERT_EQ(cudaStreamSynchronize(device->load()), cudaSuccess);  // not the backend's own
  {
    const auto buffer = (*backend)->allocate(2 * kRoom);
    ASSERT_TRUE(buffer.ok()) << buffer.status().message();
  }
  // Too much is an error all the same, and says how much.
  EXPECT_EQ((*backend)->allocate(all + 1).status().code(), Code::kResourceExhausted);
  const Status status = come_and_go(all + 1);
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_NE(status.message().find(std::to_string(all + 1)), std::string::npos) << status.message();
}

TEST_F(CudaMemory, OfAVariantThatIsGivenUpAtItsEndComesBack) {
  const auto base = testing::load_on_cuda("llama");
  ASSERT_TRUE(base.ok());
  VariantContent content;
  for (size_t id = 0; id < (*base)->table.specs.size(); ++id)
    if ((*base)->table.specs[id].kind == WeightKind::kMatrix && (*base)->table.specs[id].alias < 0)
      content.signs.push_back({static_cast<WeightId>(id), 1});
  const size_t before = emulated_gpu::allocated_bytes();
  auto variant = (*base)->backend->new_variant(content);
  ASSERT_TRUE(variant.ok()) << variant.status().message();
  const std::atomic<bool> given_up{true}, goes_on{false};
  EXPECT_EQ((*variant)->finish(&given_up).code(), Code::kCancelled);
  EXPECT_TRUE((*variant)->finish(&goes_on).ok());
  variant->reset();
  EXPECT_EQ(emulated_gpu::allocated_bytes(), before);
}

TEST_F(CudaMemory, VariantsTakeWhatWasAnnounced) {
  const auto base = testing::load_on_cuda("llama");
  ASSERT_TRUE(base.ok());
  for (const char* path : {testing::kOneLevel, testing::kDense, testing::kLowRank}) {
    const size_t before = emulated_gpu::allocated_bytes();
    const auto size = measure_variant(testing::golden(path), (*base)->table, *(*base)->backend, {});
    ASSERT_TRUE(size.ok());
    const auto variant = testing::load_golden_variant(**base, path);
    ASSERT_TRUE(variant.ok());
    EXPECT_EQ((*variant)->weights->bytes(), static_cast<size_t>(size->bytes));
    EXPECT_EQ(emulated_gpu::allocated_bytes() - before, static_cast<size_t>(size->bytes)) << path;
  }
}

}  // namespace
}  // namespace deltad
