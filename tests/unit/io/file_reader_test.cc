// FileReader: reads within the file only, and says what is wrong otherwise.
#include "io/file_reader.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/temp_folder.h"

namespace deltad {
namespace {

using ::deltad::testing::TempFolder;
using ::testing::HasSubstr;

TEST(FileReader, ReadsWithinTheFileOnly) {
  TempFolder folder;
  const std::string path = folder.write("data", "0123456789");
  const auto file = FileReader::open(path);
  ASSERT_TRUE(file.ok());
  char out[10];
  ASSERT_TRUE((*file)->read(3, 4, out).ok());
  EXPECT_EQ(std::string(out, 4), "3456");
  EXPECT_TRUE((*file)->read(10, 0, out).ok());
  EXPECT_FALSE((*file)->read(8, 3, out).ok());
  EXPECT_FALSE((*file)->read(-1, 1, out).ok());
  EXPECT_FALSE((*file)->read(INT64_MAX, 2, out).ok());
  ASSERT_EQ(truncate(path.c_str(), 5), 0);
  const Status cut = (*file)->read(3, 4, out);
  EXPECT_THAT(cut.message(), HasSubstr("cut short to 5 bytes"));
}

TEST(FileReader, KnowsWhenItsFileHasChanged) {
  TempFolder folder;
  const std::string path = folder.write("data", "0123456789");
  const auto opened = [&] {
    auto file = FileReader::open(path);
    EXPECT_TRUE(file.ok());
    EXPECT_TRUE((*file)->unchanged().ok());
    return *file;
  };
  const auto says = [](const std::shared_ptr<FileReader>& file) {
    EXPECT_EQ(file->unchanged().code(), Code::kUnavailable);
    return file->unchanged().message();
  };
  auto file = opened();
  ASSERT_EQ(truncate(path.c_str(), 5), 0);
  EXPECT_THAT(says(file), HasSubstr("it had 10 bytes, now 5"));
  file = opened();
  const timespec times[2] = {{0, UTIME_OMIT}, {12345, 678}};
  ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  EXPECT_THAT(says(file), HasSubstr("written to"));
  file = opened();
  ASSERT_EQ(rename(folder.write("other", "01234").c_str(), path.c_str()), 0);
  EXPECT_THAT(says(file), HasSubstr("replaced by another file"));
  file = opened();
  ASSERT_EQ(unlink(path.c_str()), 0);
  EXPECT_THAT(says(file), HasSubstr("removed"));
  EXPECT_TRUE(FileReader::in_memory("memory", "x")->unchanged().ok());
}

TEST(FileReader, WholeFilesHaveALimit) {
  TempFolder folder;
  const std::string path = folder.write("data", "0123456789");
  EXPECT_EQ(*read_file(path), "0123456789");
  EXPECT_EQ(*read_file(path, 10), "0123456789");
  EXPECT_THAT(read_file(path, 9).status().message(), HasSubstr("at most 9"));
}

TEST(FileReader, AFifoIsRefusedWithoutWaiting) {
  TempFolder folder;
  const std::string path = folder.file("fifo");
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_THAT(FileReader::open(path).status().message(), HasSubstr("is not a file"));
}

}  // namespace
}  // namespace deltad
