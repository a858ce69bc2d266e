// Writing safetensors files, and what is left when that fails.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <thread>

#include "io/safetensors.h"
#include "tests/support/temp_folder.h"

namespace deltad {
namespace {

using ::deltad::testing::slurp;
using ::deltad::testing::TempFolder;
using ::testing::HasSubstr;

// While it lives, no file of this process may grow beyond `bytes`: writing more fails as on a full
// disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    getrlimit(RLIMIT_FSIZE, &before_);
    handler_ = signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_;
  sighandler_t handler_;
};

std::vector<SafetensorsWriter::Tensor> two_tensors() {
  return {{"b \"quoted\" é", DType::kF32, Shape{2, 3}}, {"a", DType::kU8, Shape{5}}};
}

TEST(SafetensorsWriter, WritesWhatTheReaderReads) {
  TempFolder folder;
  const std::string path = folder.file("out.safetensors");
  auto made = SafetensorsWriter::create(
      path, {{"digest", std::string(32, '0')}, {"name", "a\nb\\\"c\""}}, two_tensors());
  ASSERT_TRUE(made.ok()) << made.status().message();
  SafetensorsWriter& writer = **made;
  const float values[6] = {1, 2, 3, 4, 5, 6};
  // Any order, any thread.
  std::thread other([&] { EXPECT_TRUE(writer.write("a", 0, "12345", 5).ok()); });
  EXPECT_TRUE(writer.write("b \"quoted\" é", 12, values + 3, 12).ok());
  EXPECT_TRUE(writer.write("b \"quoted\" é", 0, values, 12).ok());
  other.join();
  EXPECT_FALSE(file_exists(path)) << "the file may appear only when whole";
  ASSERT_TRUE(writer.set_metadata("digest", std::string(32, 'f')).ok());
  ASSERT_TRUE(writer.finish().ok());
  made = internal_error("let the writer go");
  EXPECT_EQ(folder.count(), 1);

  const std::string bytes = slurp(path);
  EXPECT_EQ(static_cast<uint8_t>(bytes[0]) % 8, 0) << "header padded to a multiple of 8";
  const auto file = SafetensorsFile::open(path);
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->metadata().at("digest"), std::string(32, 'f'));
  EXPECT_EQ(file->metadata().at("name"), "a\nb\\\"c\"");
  const SafetensorsEntry* b = file->find("b \"quoted\" é");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->shape, (Shape{2, 3}));
  float read[6];
  ASSERT_TRUE(file->read(*b, 0, 24, read).ok());
  EXPECT_THAT(read, ::testing::ElementsAreArray(values));
  EXPECT_LT(b->offset, file->find("a")->offset) << "the order given";
  EXPECT_EQ(bytes.substr(bytes.size() - 5), "12345");
}

TEST(SafetensorsWriter, AnUnfinishedFileLeavesTheOldOne) {
  TempFolder folder;
  const std::string path = folder.write("out.safetensors", "old");
  {
    auto writer = SafetensorsWriter::create(path, {}, two_tensors());
    ASSERT_TRUE(writer.ok());
    EXPECT_TRUE((*writer)->write("a", 0, "1234", 4).ok());
    const Status status = (*writer)->finish();
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(status.message(), HasSubstr("tensor b"));
    EXPECT_EQ(slurp(path), "old");
  }
  EXPECT_EQ(folder.count(), 1);
  EXPECT_EQ(slurp(path), "old");
}

TEST(SafetensorsWriter, NothingIsLeftOfAKilledProcess) {
  TempFolder folder;
  const std::string path = folder.write("out.safetensors", "old");
  const int in_folder = open(folder.path().c_str(), O_TMPFILE | O_WRONLY, 0600);
  if (in_folder < 0) GTEST_SKIP() << "this file system has no files without a name";
  close(in_folder);
  EXPECT_EXIT(
      {
        auto writer = SafetensorsWriter::create(path, {}, two_tensors());
        if (writer.ok() && (*writer)->write("a", 0, "1234", 4).ok()) raise(SIGKILL);
      },
      ::testing::KilledBySignal(SIGKILL), "");
  EXPECT_EQ(folder.count(), 1);
  EXPECT_EQ(slurp(path), "old");
}

TEST(SafetensorsWriter, AFullDiskIsFoundBeforeTheWork) {
  TempFolder folder;
  const std::string path = folder.write("out.safetensors", "old");
  const FileSizeLimit limit(4096);
  const auto writer =
      SafetensorsWriter::create(path, {}, {{"big", DType::kF32, Shape{1000, 1000}}});
  ASSERT_FALSE(writer.ok());
  EXPECT_EQ(writer.status().code(), Code::kInternal);
  EXPECT_THAT(writer.status().message(), HasSubstr(path));
  EXPECT_EQ(folder.count(), 1);
  EXPECT_EQ(slurp(path), "old");
}

TEST(SafetensorsWriter, AFullDiskWhileWritingLeavesTheOldFile) {
  TempFolder folder;
  const std::string path = folder.write("out.safetensors", "old");
  {
    auto writer = SafetensorsWriter::create(path, {}, {{"big", DType::kU8, Shape{100'000}}});
    ASSERT_TRUE(writer.ok()) << writer.status().message();
    const std::string data(100'000, 'x');
    const FileSizeLimit limit(4096);
    const Status status = (*writer)->write("big", 0, data.data(), 100'000);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.code(), Code::kInternal);
    EXPECT_THAT(status.message(), HasSubstr(path));
    EXPECT_FALSE((*writer)->finish().ok());
  }
  EXPECT_EQ(folder.count(), 1);
  EXPECT_EQ(slurp(path), "old");
}

TEST(SafetensorsWriter, RefusesWhatNoFileCanHold) {
  TempFolder folder;
  const auto message = [&](const std::vector<SafetensorsWriter::Tensor>& tensors) {
    const auto writer = SafetensorsWriter::create(folder.file("out"), {}, tensors);
    return writer.ok() ? std::string("accepted") : writer.status().message();
  };
  EXPECT_THAT(message({{"a", DType::kU8, Shape{1}}, {"a", DType::kU8, Shape{1}}}),
              HasSubstr("tensor a is there twice"));
  EXPECT_THAT(message({{"__metadata__", DType::kU8, Shape{1}}}), HasSubstr("__metadata__"));
  EXPECT_THAT(message({{"\xff", DType::kU8, Shape{1}}}), HasSubstr("UTF-8"));
  EXPECT_THAT(message({{"a", DType::kF32, Shape{int64_t{1} << 60, 4}}}), HasSubstr("shape"));
  EXPECT_EQ(folder.count(), 0);
  const auto nowhere = SafetensorsWriter::create(folder.file("none/out"), {}, two_tensors());
  ASSERT_FALSE(nowhere.ok());
  EXPECT_EQ(nowhere.status().code(), Code::kNotFound);
}

TEST(WriteFile, ReplacesTheOldFileOrLeavesIt) {
  TempFolder folder;
  const std::string path = folder.write("text", "old");
  ASSERT_TRUE(write_file(path, "new content").ok());
  EXPECT_EQ(slurp(path), "new content");
  ASSERT_TRUE(write_file(path, "").ok());
  EXPECT_EQ(slurp(path), "");
  ASSERT_TRUE(write_file(path, "kept").ok());
  {
    const FileSizeLimit limit(10);
    EXPECT_FALSE(write_file(path, std::string(100, 'x')).ok());
  }
  EXPECT_EQ(slurp(path), "kept");
  EXPECT_EQ(folder.count(), 1);
}

}  // namespace
}  // namespace deltad
