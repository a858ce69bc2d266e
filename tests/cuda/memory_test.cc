// What the backend says that it takes of the device is what it takes, to the byte.
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
