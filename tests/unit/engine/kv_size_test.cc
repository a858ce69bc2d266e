#include "engine/kv_size.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "engine/memory_budget.h"

namespace deltad {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kBlock = 1000;  // bytes of a block in all layers

TEST(KvSize, TakesAQuarterOfTheMemory) {
  const auto size = size_kv({}, 8192, kBlock, 400 * kBlock);
  ASSERT_TRUE(size.ok());
  EXPECT_EQ(size->blocks, 100);
  EXPECT_EQ(size->max_context, 1600) << "what the cache holds";
}

TEST(KvSize, AtMostSixtyFourContexts) {
  const auto size = size_kv({}, 1600, kBlock, int64_t{1} << 40);
  ASSERT_TRUE(size.ok());
  EXPECT_EQ(size->blocks, 6400);
  EXPECT_EQ(size->max_context, 1600);
}

TEST(KvSize, TakesWhatIsConfigured) {
  EngineOptions options;
  options.kv_bytes = 50 * kBlock + 999;
  options.max_context = 777;
  const auto size = size_kv(options, 8192, kBlock, 0);
  ASSERT_TRUE(size.ok());
  EXPECT_EQ(size->blocks, 50);
  EXPECT_EQ(size->max_context, 777);
}

TEST(KvSize, UnknownMemoryGetsASmallShare) {
  const auto size = size_kv({}, 1 << 20, kBlock, 0);
  ASSERT_TRUE(size.ok());
  EXPECT_EQ(size->blocks, (1 << 28) / kBlock);
}

TEST(KvSize, OfTheHostIsAsLargeAsTheCacheInAnEighthOfItsMemory) {
  const KvGeometry cache{10, 100, 16, kBlock / 10};
  EXPECT_EQ(host_kv_blocks({}, cache, 8 * 99 * kBlock), 99);
  EXPECT_EQ(host_kv_blocks({}, cache, 8 * 101 * kBlock), 100);
  EngineOptions options;
  options.kv_host_bytes = 200 * kBlock + 1;
  EXPECT_EQ(host_kv_blocks(options, cache, 8 * 99 * kBlock), 200);
  options.kv_host_bytes = 0;
  EXPECT_EQ(host_kv_blocks(options, cache, 8 * 99 * kBlock), 0);
}

TEST(KvSize, RefusesWhatCannotBe) {
  EngineOptions options;
  options.max_context = 9000;
  EXPECT_THAT(size_kv(options, 8192, kBlock, 0).status().message(), HasSubstr("8192"));
  options.max_context = 8000;
  options.kv_bytes = 100 * kBlock;
  const Status small = size_kv(options, 8192, kBlock, 0).status();
  EXPECT_EQ(small.code(), Code::kInvalidArgument);
  EXPECT_THAT(small.message(), HasSubstr("8000"));
  EXPECT_THAT(small.message(), HasSubstr("1600"));
  EXPECT_THAT(small.message(), HasSubstr("500000 bytes"));
  options = {};
  options.kv_bytes = kBlock - 1;
  EXPECT_THAT(size_kv(options, 8192, kBlock, 0).status().message(), HasSubstr("999 bytes"));
  options.kv_bytes = -1;
  EXPECT_FALSE(size_kv(options, 8192, kBlock, 0).ok());
  options = {};
  options.max_context = 1;
  EXPECT_FALSE(size_kv(options, 8192, kBlock, 0).ok());
}

class MemoryBudget : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = ::testing::TempDir() + "/memory_budget." + std::to_string(getpid());
    std::filesystem::remove_all(root_);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void put(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  std::string root_;
};

TEST_F(MemoryBudget, TakesTheSmallestLimit) {
  EXPECT_EQ(available_memory(root_), 0) << "nothing is known";
  put("/proc/meminfo", "MemTotal: 2000 kB\nMemFree: 7 kB\nMemAvailable:   1000 kB\n");
  EXPECT_EQ(available_memory(root_), 1000 * 1024);
  put("/sys/fs/cgroup/memory.max", "max\n");
  put("/sys/fs/cgroup/memory.current", "5000\n");
  EXPECT_EQ(available_memory(root_), 1000 * 1024);
  put("/sys/fs/cgroup/memory.max", "50000\n");
  EXPECT_EQ(available_memory(root_), 45000);
  put("/sys/fs/cgroup/memory.current", "60000\n");
  EXPECT_EQ(available_memory(root_), 0);
}

TEST_F(MemoryBudget, KnowsTheOlderControlGroups) {
  put("/proc/meminfo", "MemAvailable: 1000 kB\n");
  put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "7000\n");
  put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "1000\n");
  EXPECT_EQ(available_memory(root_), 6000);
}

TEST(MemoryBudgetHere, ThisMachineHasSome) { EXPECT_GT(available_memory(), 0); }

}  // namespace
}  // namespace deltad
