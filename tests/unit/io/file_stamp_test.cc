// A stamp is another one whenever a file, or one of a folder's files, may have changed.
#include "io/file_stamp.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/support/temp_folder.h"

namespace deltad {
namespace {

namespace fs = std::filesystem;

class FileStamps : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) {
    std::ofstream(folder_.file(name), std::ios::trunc) << text;
  }
  // The stamp changes with what is done.
  template <typename Change>
  void expect_change(const std::string& path, const Change& change, const char* what) {
    const FileStamp before = stamp_of(path);
    EXPECT_FALSE(before.empty()) << what;
    EXPECT_EQ(stamp_of(path), before) << what;
    change();
    EXPECT_NE(stamp_of(path), before) << what;
  }
  testing::TempFolder folder_;
};

TEST_F(FileStamps, OfAFileChangesWithIt) {
  write("a", "one");
  const std::string a = folder_.file("a");
  expect_change(
      a, [&] { write("a", "longer"); }, "another size");
  expect_change(
      a, [&] { fs::last_write_time(a, fs::last_write_time(a) + std::chrono::seconds(1)); },
      "written again");
  expect_change(
      a,
      [&] {
        const auto time = fs::last_write_time(a);
        write("b", "larger");
        fs::last_write_time(folder_.file("b"), time);
        fs::rename(folder_.file("b"), a);
      },
      "another file of the same size and time");
  expect_change(
      a, [&] { fs::remove(a); }, "removed");
  EXPECT_TRUE(stamp_of(a).empty());
}

TEST_F(FileStamps, OfALinkChangesWithItAndWithWhatItLeadsTo) {
  write("a", "one");
  write("b", "two");
  const std::string link = folder_.file("link");
  fs::create_symlink(folder_.file("a"), link);
  expect_change(
      link, [&] { write("a", "more"); }, "its file");
  expect_change(
      link,
      [&] {
        fs::remove(link);
        fs::create_symlink(folder_.file("b"), link);
      },
      "another file");
}

TEST_F(FileStamps, OfAFolderChangesWithEachOfItsFiles) {
  write("a", "one");
  write("b", "two");
  const std::string path = folder_.path();
  expect_change(
      path, [&] { write("b", "longer"); }, "a file");
  expect_change(
      path, [&] { write("c", ""); }, "a new file");
  expect_change(
      path, [&] { fs::remove(folder_.file("a")); }, "a file less");
}

}  // namespace
}  // namespace deltad
