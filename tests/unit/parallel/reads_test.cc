// Who reads what of the files when several ranks load: every byte of the tensors once, each rank a
// part of equal size in one piece.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <numeric>
#include <vector>

#include "io/read_shares.h"
#include "tests/support/counted_reads.h"
#include "tests/support/random_model.h"
#include "tests/unit/parallel/stepper.h"

namespace deltad {
namespace {

using testing::count_reads;
using testing::CountedRead;
using testing::kDiskBlock;

constexpr int kRanks = 4;

// largest: bytes of a piece that is not divided.
void expect_equal_shares(const std::string& path, int64_t largest) {
  SCOPED_TRACE(path);
  const int64_t begin = testing::data_begin(path);
  const auto size = static_cast<int64_t>(std::filesystem::file_size(path));
  const std::vector<CountedRead> all = testing::reads_of(path, begin);
  std::vector<pid_t> threads;  // in the order of their pieces
  std::map<pid_t, int64_t> bytes;
  int64_t at = begin;
  for (const CountedRead& read : all) {
    EXPECT_LE(read.begin, at) << "a gap";
    EXPECT_LE(at - read.begin, kDiskBlock) << "read twice";
    if (threads.empty() || threads.back() != read.thread) threads.push_back(read.thread);
    bytes[read.thread] += read.end - at;
    at = read.end;
  }
  EXPECT_EQ(at, size);
  EXPECT_EQ(threads.size(), static_cast<size_t>(kRanks)) << "one piece a rank";
  EXPECT_EQ(bytes.size(), static_cast<size_t>(kRanks));
  for (const auto& [thread, count] : bytes)
    EXPECT_LE(std::abs(count - (size - begin) / kRanks), largest + kDiskBlock);
}

class Reads : public ::testing::Test {
 protected:
  // Some MB, so that a share has many pieces.
  static ModelConfig model() {
    ModelConfig config = testing::even_model();
    config.hidden = 256;
    config.intermediate = 2048;
    config.vocab = 40000;
    config.layers = 5;
    return config;
  }
  void SetUp() override {
    testing::write_random_model(folder_, model(), 1);
    CpuBackendOptions cpu;
    cpu.threads = 1;
    cpu.isa = "scalar";
    count_reads([&] {
      auto base = load_base_model(folder_.path(), cpu, nullptr, {kRanks, std::chrono::seconds(60)});
      ASSERT_TRUE(base.ok()) << base.status().message();
      base_ = std::move(*base);
    });
  }
  VariantRef load(const std::string& path) {
    VariantLoadOptions options;
    options.threads = kRanks;
    VariantRef variant;
    count_reads([&] {
      auto loaded = load_variant("v", path, base_->table, base_->weights(), options);
      ASSERT_TRUE(loaded.ok()) << loaded.status().message();
      variant = *loaded;
    });
    return variant;
  }

  testing::TempFolder folder_;
  std::unique_ptr<BaseModel> base_;
};

TEST_F(Reads, OfTheBase) {
  // The digest of the base is of samples, read before by one thread: not a rank's reading.
  const std::string path = folder_.file("model.safetensors");
  CpuBackendOptions cpu;
  cpu.threads = 1;
  cpu.isa = "scalar";
  auto made = make_parallel_cpu_backend(base_->config(), cpu, {kRanks, std::chrono::seconds(60)});
  ASSERT_TRUE(made.ok());
  count_reads([&] {
    ASSERT_TRUE(load_base(*base_->checkpoint, base_->table, **made, kRanks, nullptr).ok());
  });
  expect_equal_shares(path, int64_t{2} << 20);
}

TEST_F(Reads, OfAVariantFile) {
  const std::string path = folder_.file("signs.delta.safetensors");
  testing::write_random_delta(path, model(), {2, true, true, 40}, 2);
  ASSERT_NE(load(path), nullptr);
  // A chunk: stretches of together 2 MiB, up to the end of a part of the digest.
  expect_equal_shares(path, int64_t{4} << 20);
}

TEST_F(Reads, OfAnAdapter) {
  testing::TempFolder lora;
  testing::write_random_lora(lora, model(), 16, 3);
  ASSERT_NE(load(lora.path()), nullptr);
  const int64_t module = 4 * 16 * (256 + 2048);
  expect_equal_shares(lora.file("adapter_model.safetensors"), module);
}

TEST(ReadShares, CutsPiecesIntoRunsOfEqualSize) {
  EXPECT_EQ(read_shares(std::vector<int64_t>{1, 1, 1, 1}, 2), (std::vector<int64_t>{0, 2, 4}));
  EXPECT_EQ(read_shares(std::vector<int64_t>{5, 1, 1, 1}, 2), (std::vector<int64_t>{0, 1, 4}));
  EXPECT_EQ(read_shares(std::vector<int64_t>{9}, 3), (std::vector<int64_t>{0, 0, 1, 1}));
  EXPECT_EQ(read_shares({}, 3), (std::vector<int64_t>{0, 0, 0, 0}));
  std::vector<int64_t> sizes(1000);
  for (size_t i = 0; i < sizes.size(); ++i) sizes[i] = static_cast<int64_t>(i * i % 37 + 1);
  const int64_t all = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  for (const int shares : {1, 2, 3, 7, 16}) {
    const std::vector<int64_t> bounds = read_shares(sizes, shares);
    ASSERT_EQ(bounds.size(), static_cast<size_t>(shares) + 1);
    EXPECT_EQ(bounds.front(), 0);
    EXPECT_EQ(bounds.back(), 1000);
    for (int k = 0; k < shares; ++k) {
      const auto from = sizes.begin() + bounds[static_cast<size_t>(k)];
      const int64_t bytes =
          std::accumulate(from, sizes.begin() + bounds[static_cast<size_t>(k) + 1], int64_t{0});
      EXPECT_LE(std::abs(bytes - all / shares), 38);
    }
  }
}

}  // namespace
}  // namespace deltad
