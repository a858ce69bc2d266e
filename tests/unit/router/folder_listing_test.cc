// Which variants a folder tree holds, and under which names.
#include "router/folder_listing.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "tests/support/temp_folder.h"

namespace deltad {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class FolderListingTest : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& content = "x") {
    fs::create_directories(fs::path(folder_.file(name)).parent_path());
    return folder_.write(name, content);
  }
  FolderListing list() { return list_folder(folder_.path()); }
  // "NAME=path from the folder" of each.
  std::vector<std::string> names() {
    std::vector<std::string> out;
    for (const auto& [name, variant] : list().variants)
      out.push_back(name + "=" + variant.path.substr(folder_.path().size() + 1));
    return out;
  }

  testing::TempFolder folder_;
};

TEST_F(FolderListingTest, FilesAreNamedByTheirPath) {
  write("sql.delta.safetensors");
  write("org/v1.5.delta.safetensors");
  write("org/team/deep/x.delta.safetensors");
  EXPECT_THAT(names(),
              ElementsAre("org/team/deep/x=org/team/deep/x.delta.safetensors",
                          "org/v1.5=org/v1.5.delta.safetensors", "sql=sql.delta.safetensors"));
}

TEST_F(FolderListingTest, AFolderWithTextFilesOrAFileOfItsNameIsAVariant) {
  write("legal/weights.delta.safetensors");
  write("legal/tokenizer.json");
  write("org/sql/sql.delta.safetensors");
  write("org/sql/deeper/x.delta.safetensors");  // part of the variant, if of anything
  write("org/README.md");
  EXPECT_THAT(names(), ElementsAre("legal=legal", "org/sql=org/sql"));
  // At the top text files mean nothing.
  write("tokenizer.json");
  write("top.delta.safetensors");
  EXPECT_THAT(names(), ElementsAre("legal=legal", "org/sql=org/sql", "top=top.delta.safetensors"));
  // What is none, but looks as if it was meant to be one, is listed for others to say why.
  write("legal/other.delta.safetensors");
  write("lora/adapter_config.json");
  EXPECT_THAT(names(), ElementsAre("legal=legal", "lora=lora", "org/sql=org/sql",
                                   "top=top.delta.safetensors"));
}

TEST_F(FolderListingTest, AnAdapterChangesWithEitherOfItsFiles) {
  write("lora/adapter_config.json");
  write("lora/adapter_model.safetensors");
  const auto stamp = [&] { return list().variants.at("lora").stamp; };
  const auto first = stamp();
  EXPECT_EQ(stamp(), first);
  fs::remove(folder_.file("lora/adapter_model.safetensors"));
  const auto without = stamp();
  EXPECT_NE(without, first);
  write("lora/adapter_model.safetensors");
  EXPECT_NE(stamp(), without);
}

TEST_F(FolderListingTest, PassesOverWhatIsNotYetOrNoVariant) {
  write(".sql.delta.safetensors");
  write(".hidden/a.delta.safetensors");
  write("a.delta.safetensors.tmp-123");
  write("b.tmp.delta.safetensors");
  write("c.delta.safetensors.part");
  write("d.part/d.delta.safetensors");
  write("e.safetensors");
  write("notes.txt");
  fs::create_directory(folder_.file("f.delta.safetensors"));
  ASSERT_EQ(mkfifo(folder_.file("g.delta.safetensors").c_str(), 0600), 0);
  EXPECT_THAT(names(), IsEmpty());
  EXPECT_THAT(list().problems, IsEmpty());
}

TEST_F(FolderListingTest, FollowsLinks) {
  testing::TempFolder elsewhere;
  elsewhere.write("real", "x");
  fs::create_directory(elsewhere.file("more"));
  elsewhere.write("more/b.delta.safetensors", "x");
  fs::create_symlink(elsewhere.file("real"), folder_.file("a.delta.safetensors"));
  fs::create_directory_symlink(elsewhere.file("more"), folder_.file("org"));
  fs::create_directory_symlink(folder_.path(), folder_.file("loop"));
  fs::create_symlink("/nowhere", folder_.file("lost.delta.safetensors"));
  EXPECT_THAT(names(), ElementsAre("a=a.delta.safetensors", "org/b=org/b.delta.safetensors"));
  EXPECT_THAT(list().problems,
              ::testing::UnorderedElementsAre(HasSubstr("loop' is left out: it is a link to a"),
                                              HasSubstr("something that is not there")));
  // Another target is another content.
  const auto before = list().variants["a"].stamp;
  elsewhere.write("other", "x");
  fs::remove(folder_.file("a.delta.safetensors"));
  fs::create_symlink(elsewhere.file("other"), folder_.file("a.delta.safetensors"));
  EXPECT_NE(list().variants["a"].stamp, before);
}

TEST_F(FolderListingTest, TheStampFollowsEveryChange) {
  const std::string file = write("a.delta.safetensors");
  write("v/v.delta.safetensors");
  const auto a = list().variants["a"].stamp, v = list().variants["v"].stamp;
  EXPECT_EQ(list().variants["a"].stamp, a);
  write("b.delta.safetensors");
  fs::rename(folder_.file("b.delta.safetensors"), file);
  EXPECT_NE(list().variants["a"].stamp, a);
  write("v/tokenizer.json");
  const auto with_text = list().variants["v"].stamp;
  EXPECT_NE(with_text, v);
  write("v/tokenizer.json", "longer");
  EXPECT_NE(list().variants["v"].stamp, with_text);
  EXPECT_LT(list().variants["a"].age, std::chrono::minutes(5));
}

TEST_F(FolderListingTest, OneNameForTwoIsSaid) {
  write("a.delta.safetensors");
  write("a/a.delta.safetensors");
  EXPECT_THAT(names(), ElementsAre("a=a.delta.safetensors"));
  EXPECT_THAT(list().problems, ElementsAre(HasSubstr("has the same name")));
}

TEST_F(FolderListingTest, TellsWhatToWatchBeforeItReads) {
  write("org/a.delta.safetensors");
  std::vector<std::string> watched;
  list_folder(folder_.path(), [&](const std::string& path) {
    watched.push_back(path);
    if (watched.size() == 2) write("org/late.delta.safetensors");
  });
  EXPECT_THAT(watched, ElementsAre(folder_.path(), folder_.file("org")));
}

TEST_F(FolderListingTest, AMissingFolderHoldsNothing) {
  const FolderListing listing = list_folder(folder_.file("none"));
  EXPECT_THAT(listing.variants, IsEmpty());
  EXPECT_THAT(listing.unread, IsEmpty());
  EXPECT_THAT(listing.problems, ElementsAre(HasSubstr("No such file")));
}

TEST_F(FolderListingTest, AFolderThatMayNotBeReadIsUnread) {
  if (geteuid() == 0) GTEST_SKIP() << "root may read everything";
  write("org/a.delta.safetensors");
  fs::permissions(folder_.file("org"), fs::perms::none);
  EXPECT_THAT(list().unread, ElementsAre("org/"));
  fs::permissions(folder_.file("org"), fs::perms::owner_all);
}

}  // namespace
}  // namespace deltad
