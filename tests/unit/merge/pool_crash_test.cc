// The pool's state at every file operation: the process is killed there, the power goes there, or
// the disk fails there. Afterwards the pool is exactly as before the operation or as after it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "merge/pool_state.h"
#include "pool_world.h"
#include "tests/support/failing_folder.h"

namespace deltad {
namespace {

namespace fs = std::filesystem;
using testing::ForgetfulFolder;
using testing::PoolWorld;
using testing::SmallAdapter;
using testing::StoppingFolder;
using testing::TempFolder;

using Operation = std::function<Status(PoolWorld&)>;

struct NamedOperation {
  const char* name;
  Operation prepare, run;
};

Status nothing(PoolWorld&) { return {}; }

// Changes of every kind: several members at once, a merge, a shared member, a removed file.
const NamedOperation kOperations[] = {
    {"storing", nothing,
     [](PoolWorld& w) {
       return w.add("c", {3, 4});
     }},
    {"shrinking",
     [](PoolWorld& w) { return w.pool->set_budget(w.pool->view().bytes, nullptr, &w.report); },
     [](PoolWorld& w) {
       return w.add("c", {3, 4});
     }},
    {"merging", nothing,
     [](PoolWorld& w) {
       return w.pool->set_budget(w.bytes_of({1, 4}) * 7 / 10, nullptr, &w.report);
     }},
    {"sharing", nothing,
     [](PoolWorld& w) {
       return w.add("again", {1, 4});
     }},
    {"removing", nothing, [](PoolWorld& w) { return w.pool->remove("a"); }},
};

// What is in the folder, by name.
std::map<std::string, std::string> content_of(const std::string& folder) {
  std::map<std::string, std::string> out;
  for (const auto& file : fs::recursive_directory_iterator(folder))
    if (file.is_regular_file())
      out[fs::relative(file.path(), folder).string()] = testing::slurp(file.path().string());
  return out;
}

// Two adapters, in a folder that each case copies.
class PoolCrashTest : public ::testing::TestWithParam<NamedOperation> {
 protected:
  void SetUp() override {
    ASSERT_TRUE(start_.open().ok());
    ASSERT_TRUE(start_.add("a", {1, 4}).ok());
    ASSERT_TRUE(start_.add("b", {2, 4}).ok());
    ASSERT_TRUE(GetParam().prepare(start_).ok());
    before_ = content_of(start_.folder->path());
  }
  // A world in a copy of the folder, behind whatever `wrap` puts before it.
  struct Case {
    PoolWorld world{kBudget};
    std::unique_ptr<DurableFolder> real;
  };
  static std::unique_ptr<Case> copy_of(const std::string& folder) {
    auto out = std::make_unique<Case>();
    fs::copy(folder, out->world.home.path() + "/pool", fs::copy_options::recursive);
    out->real = std::move(*DurableFolder::open(out->world.home.path() + "/pool"));
    return out;
  }
  std::unique_ptr<Case> fresh() { return copy_of(start_.home.path() + "/pool"); }

  // The folder after the whole operation, and how many file operations that took.
  std::map<std::string, std::string> whole(int* operations) {
    auto of = fresh();
    auto counting = std::make_unique<StoppingFolder>(*of->real, [](int) { return Status(); });
    StoppingFolder* counter = counting.get();
    of->world.folder = std::move(counting);
    EXPECT_TRUE(of->world.open().ok());
    const Status done = GetParam().run(of->world);
    EXPECT_TRUE(done.ok()) << done.message();
    *operations = counter->operations();
    return content_of(of->real->path());
  }

  // Opens what a crash left there; which of the two states it is.
  std::string state_at(const std::string& folder, const std::map<std::string, std::string>& after) {
    auto of = copy_of(folder);
    of->world.folder = std::move(of->real);
    const Status opened = of->world.open();
    if (!opened.ok()) return opened.message();
    const auto found = content_of(of->world.folder->path());
    if (found == after) return "after";
    return found == before_ ? "before" : "between";
  }

  static constexpr int64_t kBudget = 1 << 20;
  PoolWorld start_{kBudget};
  std::map<std::string, std::string> before_;
};

TEST_P(PoolCrashTest, IsBeforeOrAfterWhenItIsKilled) {
  int operations = 0;
  const auto after = whole(&operations);
  ASSERT_NE(after, before_);
  int befores = 0, afters = 0;
  for (int at = 0; at < operations; ++at) {
    auto of = fresh();
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      of->world.folder = std::make_unique<StoppingFolder>(*of->real, [at](int n) {
        if (n == at) ::kill(::getpid(), SIGKILL);
        return Status();
      });
      if (of->world.open().ok()) (void)GetParam().run(of->world);
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << at;
    const std::string state = state_at(of->real->path(), after);
    befores += state == "before";
    afters += state == "after";
    EXPECT_TRUE(state == "before" || state == "after") << "at " << at << ": " << state;
    EXPECT_TRUE(afters == 0 || state == "after") << "at " << at;  // never back
  }
  EXPECT_GT(befores, 3);
  EXPECT_GT(afters, 0);
}

TEST_P(PoolCrashTest, IsBeforeOrAfterWhenThePowerGoes) {
  int operations = 0;
  const auto after = whole(&operations);
  auto of = fresh();
  auto forgetful = std::make_unique<ForgetfulFolder>(*of->real);
  std::vector<std::unique_ptr<TempFolder>> left;
  const auto cut_power = [&] {
    for (const auto names : {ForgetfulFolder::Names::kSynced, ForgetfulFolder::Names::kAll}) {
      left.push_back(std::make_unique<TempFolder>());
      forgetful->restore(left.back()->path(), names);
    }
  };
  of->world.folder = std::make_unique<StoppingFolder>(*forgetful, [&](int) {
    cut_power();
    return Status();
  });
  ASSERT_TRUE(of->world.open().ok());
  ASSERT_TRUE(GetParam().run(of->world).ok());
  const size_t during = left.size();
  ASSERT_EQ(during, static_cast<size_t>(2 * operations));
  cut_power();
  for (size_t i = 0; i < left.size(); ++i) {
    const std::string state = state_at(left[i]->path(), after);
    EXPECT_TRUE(state == "after" || (i < during && state == "before"))
        << "at " << i / 2 << " of " << operations << ": " << state;
  }
}

TEST_P(PoolCrashTest, IsBeforeOrAfterWhenTheDiskFails) {
  int operations = 0;
  const auto after = whole(&operations);
  int failures = 0;
  for (int at = 0; at < operations; ++at) {
    auto of = fresh();
    of->world.folder = std::make_unique<StoppingFolder>(*of->real, [at](int n) {
      return n == at ? internal_error("no space left on device") : Status();
    });
    if (!of->world.open().ok()) continue;
    const PoolView before = of->world.pool->view();
    const Status done = GetParam().run(of->world);
    failures += !done.ok();
    const std::string state = state_at(of->real->path(), after);
    if (done.ok()) {
      EXPECT_EQ(state, "after") << at;
    } else {
      EXPECT_THAT(done.message(), ::testing::HasSubstr("no space left")) << at;
      EXPECT_EQ(state, "before") << at;
      EXPECT_EQ(of->world.pool->view().bytes, before.bytes);
      EXPECT_TRUE(GetParam().run(of->world).ok()) << at;  // and goes on
    }
  }
  EXPECT_GT(failures, 2);
}

INSTANTIATE_TEST_SUITE_P(Operations, PoolCrashTest, ::testing::ValuesIn(kOperations),
                         [](const auto& of) { return of.param.name; });

}  // namespace
}  // namespace deltad
