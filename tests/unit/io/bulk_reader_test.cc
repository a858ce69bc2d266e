// BulkReader: any stretch, past the page cache or through it; cut files, cancelling, the rate.
#include "io/bulk_reader.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "tests/support/temp_folder.h"

namespace deltad {
namespace {

using ::deltad::testing::TempFolder;
using ::testing::HasSubstr;

constexpr int64_t kFileBytes = (int64_t{9} << 20) + 1234;

class BulkReaderTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    content_.resize(static_cast<size_t>(kFileBytes));
    uint32_t state = 1;
    for (char& c : content_) c = static_cast<char>((state = state * 1664525 + 1013904223) >> 24);
    path_ = folder_.write("data", content_);
    const int fd = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
    fdatasync(fd);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    ::close(fd);
    auto file = FileReader::open(path_);
    ASSERT_TRUE(file.ok());
    file_ = *file;
    options_.allow_direct = GetParam();
    auto staging = BulkReader::staging(kFileBytes);
    ASSERT_TRUE(staging.ok());
    staging_ = std::move(*staging);
  }

  TempFolder folder_;
  std::string content_, path_;
  std::shared_ptr<FileReader> file_;
  BulkReadOptions options_;
  Arena staging_;
};

TEST_P(BulkReaderTest, ReadsAnyStretch) {
  BulkReader reader(*file_, options_);
  EXPECT_TRUE(GetParam() || !reader.direct());
  const int64_t stretches[][2] = {{0, kFileBytes},
                                  {0, 0},
                                  {0, 1},
                                  {1, 4095},
                                  {4095, 2},
                                  {4096, 8192},
                                  {777, 65536},
                                  {100, 5 << 20},
                                  {kFileBytes, 0},
                                  {kFileBytes - 1, 1},
                                  {5000, kFileBytes - 5000}};
  for (const auto& [offset, bytes] : stretches) {
    std::memset(staging_.at({0, staging_.bytes()}).data(), 0, staging_.bytes());
    const auto read = reader.read(offset, bytes, staging_);
    ASSERT_TRUE(read.ok()) << read.status().message();
    EXPECT_EQ(std::memcmp(*read, content_.data() + offset, static_cast<size_t>(bytes)), 0)
        << offset << "+" << bytes;
  }
}

TEST_P(BulkReaderTest, SaysThatTheFileWasCutShort) {
  BulkReader reader(*file_, options_);
  for (const off_t left : {5000000, 4096, 1000, 0}) {
    ASSERT_EQ(truncate(path_.c_str(), left), 0);
    const auto read = reader.read(0, kFileBytes, staging_);
    EXPECT_EQ(read.status().code(), Code::kInvalidArgument);
    EXPECT_THAT(read.status().message(), HasSubstr("cut short to " + std::to_string(left)));
  }
}

TEST_P(BulkReaderTest, KeepsToTheFileThatWasOpened) {
  folder_.write("other", std::string(static_cast<size_t>(kFileBytes), 'x'));
  ASSERT_EQ(rename(folder_.file("other").c_str(), path_.c_str()), 0);
  BulkReader reader(*file_, options_);
  const auto read = reader.read(0, kFileBytes, staging_);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(std::memcmp(*read, content_.data(), content_.size()), 0);
}

TEST_P(BulkReaderTest, StopsWhenCancelled) {
  std::atomic<bool> cancelled{true};
  options_.cancelled = &cancelled;
  BulkReader reader(*file_, options_);
  EXPECT_EQ(reader.read(0, kFileBytes, staging_).status().code(), Code::kCancelled);
  cancelled = false;
  EXPECT_TRUE(reader.read(0, kFileBytes, staging_).ok());
}

INSTANTIATE_TEST_SUITE_P(Ways, BulkReaderTest, ::testing::Bool(), [](const auto& param) {
  return param.param ? std::string("PastTheCache") : std::string("ThroughTheCache");
});

TEST(BulkReader, ReadsContentInMemory) {
  const auto file = FileReader::in_memory("memory", "0123456789");
  BulkReader reader(*file, {});
  EXPECT_FALSE(reader.direct());
  const auto staging = BulkReader::staging(10);
  const auto read = reader.read(3, 4, *staging);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(std::memcmp(*read, "3456", 4), 0);
}

struct SetClock : Clock {
  TimePoint time{std::chrono::hours(1)};
  TimePoint now() const override { return time; }
};

TEST(RateLimitTest, TurnsFollowTheBytesBefore) {
  SetClock clock;
  RateLimit limit(1000, clock);
  const TimePoint start = clock.time;
  const auto after = [&](int milliseconds) {
    return start + std::chrono::milliseconds(milliseconds);
  };
  EXPECT_EQ(limit.admit(100), start);
  EXPECT_EQ(limit.admit(50), after(100));
  EXPECT_EQ(limit.admit(1000), after(150));
  clock.time = after(5000);  // nobody asked for a while: that is not made up for
  EXPECT_EQ(limit.admit(100), after(5000));
  EXPECT_EQ(limit.admit(100), after(5100));
}

// Waiting for its turn, a read is cancelled at once: its turn would come in weeks.
TEST(RateLimitTest, AWaitingReadIsCancelled) {
  const auto file = FileReader::in_memory("memory", std::string(1 << 20, 'x'));
  RateLimit limit(1);
  std::atomic<bool> cancelled{false};
  BulkReadOptions options;
  options.rate = &limit;
  options.cancelled = &cancelled;
  BulkReader reader(*file, options);
  const auto staging = BulkReader::staging(1 << 20);
  ASSERT_TRUE(reader.read(0, 1 << 20, *staging).ok());
  std::thread waiter(
      [&] { EXPECT_EQ(reader.read(0, 1 << 20, *staging).status().code(), Code::kCancelled); });
  cancelled = true;
  waiter.join();
  // And the next one does not wait for what was not read.
  EXPECT_LT(limit.admit(1), Clock::real().now() + std::chrono::seconds((1 << 20) + 1));
}

}  // namespace
}  // namespace deltad
