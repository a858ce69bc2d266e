// What is taken from a watched folder, and when: with listings and times made by hand.
#include "router/watched_folder.h"

#include <gmock/gmock.h>

#include <optional>
#include <random>

#include "tests/support/fake_clock.h"

namespace deltad {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Kind = FolderAction::Kind;

constexpr double kOld = 1000;  // seconds since the last change

class WatchedFolderTest : public ::testing::Test {
 protected:
  // The variant's file as it is from now on; version 0: gone.
  void put(const std::string& name, int64_t version, double age = 0) {
    if (version == 0)
      listing_.variants.erase(name);
    else
      listing_.variants[name] = {"/w/" + name, {version}, from_seconds(age)};
  }
  // Looks after `seconds`, carries everything out with `status`, and says what that was.
  std::vector<std::string> look(double seconds, const Status& status = Status()) {
    clock_.advance(seconds);
    std::vector<std::string> out;
    for (const FolderAction& action : folder_.look(listing_, clock_.now())) {
      const char* words[] = {"add ", "replace ", "remove "};
      out.push_back(words[static_cast<int>(action.kind)] + action.name);
      EXPECT_EQ(action.path, "/w/" + action.name);
      folder_.done(action, status, clock_.now());
    }
    for (auto& [name, variant] : listing_.variants) variant.age += from_seconds(seconds);
    return out;
  }
  // Seconds until it is time to look; none: there is nothing to wait for.
  std::optional<double> wait() const {
    if (folder_.wake_time() == TimePoint::max()) return std::nullopt;
    return seconds(folder_.wake_time() - clock_.now());
  }

  testing::FakeClock clock_;
  FolderListing listing_;
  WatchedFolder folder_{from_seconds(1)};
};

TEST_F(WatchedFolderTest, WhatHasLainThereLongIsTakenAtTheFirstLook) {
  put("a", 1, kOld);
  put("org/b", 1, kOld);
  EXPECT_THAT(look(0), ElementsAre("add a", "add org/b"));
  EXPECT_EQ(wait(), std::nullopt);
  EXPECT_THAT(look(100), IsEmpty());
}

TEST_F(WatchedFolderTest, AFileThatIsStillWrittenIsNotTaken) {
  EXPECT_THAT(look(0), IsEmpty());
  for (int version = 1; version <= 20; ++version) {
    put("a", version);
    EXPECT_THAT(look(0.5), IsEmpty()) << version;
    EXPECT_EQ(wait(), 1);
  }
  EXPECT_THAT(look(0.9), IsEmpty());
  EXPECT_NEAR(*wait(), 0.1, 1e-6);
  EXPECT_THAT(look(0.1), ElementsAre("add a"));
}

TEST_F(WatchedFolderTest, TheTimeBeforeItWasSeenCounts) {
  put("a", 1, 0.75);
  EXPECT_THAT(look(0), IsEmpty());
  EXPECT_NEAR(*wait(), 0.25, 1e-6);
  // A clock that is wrong costs one settle time, no more.
  put("b", 1, -kOld);
  EXPECT_THAT(look(0.25), ElementsAre("add a"));
  EXPECT_EQ(wait(), 1);
  EXPECT_THAT(look(1), ElementsAre("add b"));
}

TEST_F(WatchedFolderTest, ReplacesAndRemoves) {
  put("a", 1, kOld);
  look(0);
  put("a", 2);
  EXPECT_THAT(look(0), IsEmpty());
  EXPECT_THAT(look(1), ElementsAre("replace a"));
  put("a", 0);
  EXPECT_THAT(look(0), IsEmpty());
  EXPECT_EQ(wait(), 1);
  EXPECT_THAT(look(1), ElementsAre("remove a"));
  EXPECT_EQ(wait(), std::nullopt);
  put("a", 3, kOld);
  EXPECT_THAT(look(0), ElementsAre("add a"));
}

// Deleted and copied anew: nobody meets a time without it.
TEST_F(WatchedFolderTest, AFileThatComesBackWithinTheSettleTimeWasNotGone) {
  put("a", 1, kOld);
  look(0);
  put("a", 0);
  EXPECT_THAT(look(0), IsEmpty());
  put("a", 2);
  EXPECT_THAT(look(0.9), IsEmpty());
  EXPECT_THAT(look(0.5), IsEmpty());
  EXPECT_THAT(look(0.5), ElementsAre("replace a"));
  // The same one back, as when its folder was renamed and renamed again: nothing is to do.
  put("a", 0);
  look(0);
  put("a", 2, kOld);
  EXPECT_THAT(look(0.5), IsEmpty());
  EXPECT_EQ(wait(), std::nullopt);
}

TEST_F(WatchedFolderTest, ABadFileIsTriedAgainWhenItChanges) {
  const Status bad = invalid_argument("bad");
  put("a", 1, kOld);
  EXPECT_THAT(look(0, bad), ElementsAre("add a"));
  EXPECT_EQ(wait(), std::nullopt);
  EXPECT_THAT(look(100), IsEmpty());
  put("a", 2);
  EXPECT_THAT(look(0), IsEmpty());
  EXPECT_THAT(look(1), ElementsAre("add a"));
  // A bad replacement leaves the old version, which a removal then removes.
  put("a", 3, kOld);
  EXPECT_THAT(look(0, bad), ElementsAre("replace a"));
  put("a", 4, kOld);
  EXPECT_THAT(look(0, bad), ElementsAre("replace a"));
  put("a", 0);
  look(0);
  EXPECT_THAT(look(1), ElementsAre("remove a"));
  // One that was never taken just goes.
  put("b", 1, kOld);
  EXPECT_THAT(look(0, bad), ElementsAre("add b"));
  put("b", 0);
  EXPECT_THAT(look(0), IsEmpty());
  EXPECT_EQ(wait(), std::nullopt);
}

TEST_F(WatchedFolderTest, AFailureThatMayPassIsTriedAgainByItself) {
  const Status busy = internal_error("too many open files");
  put("a", 1, kOld);
  EXPECT_THAT(look(0, busy), ElementsAre("add a"));
  for (const double expected : {1, 2, 4, 8, 16, 32, 60, 60}) {
    EXPECT_EQ(wait(), expected);
    EXPECT_THAT(look(expected / 2, busy), IsEmpty());
    EXPECT_THAT(look(expected / 2, busy), ElementsAre("add a"));
  }
  EXPECT_THAT(look(60), ElementsAre("add a"));
  EXPECT_EQ(wait(), std::nullopt);
}

TEST_F(WatchedFolderTest, WhatCannotBeReadIsNotGone) {
  for (const char* name : {"a", "org/b", "organ/c"}) put(name, 1, kOld);
  look(0);
  for (const char* name : {"a", "org/b", "organ/c"}) put(name, 0);
  listing_.unread = {"org/"};
  look(0);
  EXPECT_THAT(look(1), ElementsAre("remove a", "remove organ/c"));
  listing_.unread = {""};
  look(0);
  EXPECT_THAT(look(10), IsEmpty());
  listing_.unread = {};
  look(0);
  EXPECT_THAT(look(1), ElementsAre("remove org/b"));
}

TEST_F(WatchedFolderTest, WhatStirsAllTheTimeIsLookedAtNowAndThen) {
  look(0);
  int looks = 0;
  for (int i = 0; i < 1000; ++i) {  // a write each millisecond
    clock_.advance(0.001);
    folder_.stirred(clock_.now());
    EXPECT_TRUE(folder_.about_to_look());
    if (*wait() > 0) continue;
    ++looks;
    look(0);
    EXPECT_FALSE(folder_.about_to_look());
  }
  EXPECT_EQ(looks, 4);
  // After a quiet time the first stir is looked at at once.
  clock_.advance(5);
  folder_.stirred(clock_.now());
  EXPECT_EQ(wait(), 0);
}

// Whatever happens, once the folder is quiet the catalog is as the folder says.
TEST_F(WatchedFolderTest, RandomChangesEndInWhatTheFolderHolds) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    WatchedFolder folder(from_seconds(1));
    FolderListing listing;
    std::map<std::string, std::vector<int64_t>> catalog;
    int64_t version = 0;
    const auto step = [&](bool quiet) {
      clock_.advance(quiet ? 100 : 0.01 * (random() % 100));
      for (const FolderAction& action : folder.look(listing, clock_.now())) {
        const bool fails = !quiet && random() % 5 == 0;
        const auto listed = listing.variants.find(action.name);
        EXPECT_EQ(catalog.count(action.name), action.kind == Kind::kAdd ? 0u : 1u);
        if (action.kind == Kind::kRemove) {
          EXPECT_EQ(listed, listing.variants.end());
          catalog.erase(action.name);
        } else if (!fails) {
          catalog[action.name] = listed->second.stamp;
        }
        folder.done(action, fails ? unavailable("for now") : Status(), clock_.now());
      }
    };
    for (int i = 0; i < 500; ++i) {
      const std::string name(1, static_cast<char>('a' + random() % 6));
      listing.unread.clear();
      if (random() % 20 == 0) listing.unread.push_back(name);
      if (random() % 3 == 0)
        listing.variants.erase(name);
      else
        listing.variants[name] = {
            "/w/" + name, {++version}, from_seconds(random() % 2 == 0 ? kOld : 0)};
      step(false);
    }
    listing.unread.clear();
    step(true);
    step(true);
    std::map<std::string, std::vector<int64_t>> expected;
    for (const auto& [name, variant] : listing.variants) expected[name] = variant.stamp;
    EXPECT_EQ(catalog, expected);
    EXPECT_EQ(folder.wake_time(), TimePoint::max());
  }
}

}  // namespace
}  // namespace deltad
