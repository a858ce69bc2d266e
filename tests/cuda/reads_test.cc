// On GPUs as on processors (tests/unit/parallel/reads_test.cc): what the ranks read of a file adds
// up to the file once, and a variant that comes back from the host reads nothing.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/cuda/emulated_world.h"
#include "tests/support/counted_reads.h"
#include "tests/support/random_model.h"
#include "tests/unit/parallel/stepper.h"

namespace deltad {
namespace {

using testing::count_reads;

class ReadsOnGpus : public ::testing::TestWithParam<int> {
 protected:
  // Large enough that each of four ranks has several pieces.
  static ModelConfig model() {
    ModelConfig config = testing::even_model();
    config.hidden = 128;
    config.intermediate = 1024;
    config.vocab = 16384;
    return config;
  }
  void SetUp() override {
    emulated_gpu::Options options;
    options.devices = GetParam();
    options.order = emulated_gpu::Order::kEager;
    emulated_gpu::reset(options);
    testing::write_random_model(folder_, model(), 1);
    testing::write_random_delta(delta(), model(), {2, true, true, 40}, 2);
    testing::write_random_lora(lora_, model(), 16, 3);
    base_ = testing::on_gpus(folder_.path(), GetParam());
    ASSERT_NE(base_, nullptr);
  }
  void TearDown() override {
    base_.reset();
    EXPECT_EQ(emulated_gpu::report(), "");
    emulated_gpu::reset();
  }
  std::string delta() const { return folder_.file("signs.delta.safetensors"); }
  VariantRef load(const std::string& path) {
    VariantLoadOptions options;
    options.threads = GetParam();
    VariantRef variant;
    count_reads([&] {
      auto loaded = load_variant("v", path, base_->table, base_->weights(), options);
      ASSERT_TRUE(loaded.ok()) << loaded.status().message();
      variant = *loaded;
    });
    return variant;
  }
  // Every byte of the tensors, and none twice but those of blocks of the disk where two reads meet.
  static void expect_read_once(const std::string& path) {
    SCOPED_TRACE(path);
    const int64_t begin = testing::data_begin(path);
    const auto size = static_cast<int64_t>(std::filesystem::file_size(path));
    int64_t at = begin;
    for (const testing::CountedRead& read : testing::reads_of(path, begin)) {
      EXPECT_LE(read.begin, at) << "a gap";
      EXPECT_LE(at - read.begin, testing::kDiskBlock) << "read twice";
      at = read.end;
    }
    EXPECT_EQ(at, size);
  }

  testing::TempFolder folder_, lora_;
  std::unique_ptr<BaseModel> base_;
};
INSTANTIATE_TEST_SUITE_P(Gpus, ReadsOnGpus, ::testing::Values(1, 2, 4));

TEST_P(ReadsOnGpus, AddUpToTheBaseOnce) {
  auto store = GetParam() > 1 ? std::unique_ptr<WeightStore>(
                                    std::move(*testing::make_ranks(GetParam())(base_->config())))
                              : std::unique_ptr<WeightStore>(std::move(*make_cuda_backend({0, 1})));
  count_reads([&] {
    ASSERT_TRUE(load_base(*base_->checkpoint, base_->table, *store, GetParam(), nullptr).ok());
  });
  expect_read_once(folder_.file("model.safetensors"));
}

TEST_P(ReadsOnGpus, AddUpToAVariantsFileOnce) {
  ASSERT_NE(load(delta()), nullptr);
  expect_read_once(delta());
}

TEST_P(ReadsOnGpus, AddUpToAnAdapterOnce) {
  ASSERT_NE(load(lora_.path()), nullptr);
  expect_read_once(lora_.file("adapter_model.safetensors"));
}

TEST_P(ReadsOnGpus, AreNoneWhereAVariantComesBackFromTheHost) {
  const VariantRef variant = load(delta());
  ASSERT_NE(variant, nullptr);
  ASSERT_TRUE(base_->weights().reserve_host(variant->bytes + 4096 * 4).ok());
  count_reads([&] {
    const auto copy = copy_to_host(*variant);
    ASSERT_TRUE(copy.ok()) << copy.status().message();
    EXPECT_TRUE(is_current(**copy));
    const std::atomic<bool> cancelled{false};
    EXPECT_TRUE(restore_variant(**copy, base_->weights(), cancelled).ok());
  });
  MutexLock lock(testing::reads_mutex);
  EXPECT_EQ(testing::counted_reads.size(), 0u);
}

}  // namespace
}  // namespace deltad
