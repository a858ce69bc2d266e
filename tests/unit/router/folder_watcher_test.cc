// A real folder, real inotify and a real router over a loader that takes any file that does not say
// "bad".
#include "router/folder_watcher.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <functional>
#include <thread>

#include "base/log.h"
#include "io/file_reader.h"
#include "router/folder_inotify.h"
#include "tests/support/temp_folder.h"

namespace deltad {
namespace {

namespace fs = std::filesystem;

class NoEngine final : public Engine {
 public:
  Result<RequestHandle> submit(Request) override { return unimplemented("no engine"); }
  Status check(const Request&) const override { return Status(); }
  void cancel(RequestHandle) override {}
  void shutdown(TimePoint) override {}
  EngineStats stats() const override { return {}; }
  int32_t max_context() const override { return 100; }
  bool healthy() const override { return true; }
};

class AnyFileLoader final : public VariantLoader {
 public:
  Result<VariantSize> measure(const std::string& path) override {
    ASSIGN_OR_RETURN(const std::string content, read_file(path));
    if (content == "bad") return invalid_argument(path + " is bad");
    return VariantSize{1, ""};
  }
  Result<VariantRef> load(const std::string&, const std::string&, Tier, int64_t,
                          const std::atomic<bool>&) override {
    return unimplemented("nothing is loaded");
  }
  Result<VariantRef> copy(const VariantRef&, Tier, const std::atomic<bool>&) override {
    return unimplemented("one tier");
  }
};

class FolderWatcherTest : public ::testing::Test {
 protected:
  void SetUp() override {
    set_log_level(LogLevel::kOff);
    RouterOptions options;
    options.base_name = "base";
    options.cache_bytes = 1000;
    configured_ = outside_.write("configured", "good");
    auto router = Router::make(options, {{"configured", configured_}}, nullptr,
                               std::make_unique<AnyFileLoader>(), engine_);
    ASSERT_TRUE(router.ok());
    router_ = std::move(*router);
  }
  void TearDown() override {
    watcher_.reset();
    set_log_level(LogLevel::kInfo);
  }
  void start(const std::string& folder) {
    auto watcher = FolderWatcher::start({folder, std::chrono::milliseconds(5)}, *router_);
    ASSERT_TRUE(watcher.ok()) << watcher.status().message();
    watcher_ = std::move(*watcher);
  }
  // Renames a whole file into place.
  void put(const std::string& path, const std::string& content = "good") {
    fs::create_directories(fs::path(path).parent_path());
    fs::rename(outside_.write("aside", content), path);
  }
  std::string path_of(const std::string& name) {
    for (const VariantInfo& info : router_->variants())
      if (info.name == name) return info.path;
    return "";
  }
  bool has(const std::string& name) { return !path_of(name).empty(); }
  static void until(const std::function<bool()>& condition) {
    while (!condition()) std::this_thread::yield();
  }

  testing::TempFolder outside_, folder_;
  std::string configured_;
  NoEngine engine_;
  std::unique_ptr<Router> router_;
  std::unique_ptr<FolderWatcher> watcher_;
};

TEST_F(FolderWatcherTest, VariantsComeAndGoWithTheirFiles) {
  start(folder_.path());
  put(folder_.file("a.delta.safetensors"));
  put(folder_.file("org/new/b.delta.safetensors"));
  until([&] { return has("a") && has("org/new/b"); });
  fs::remove(folder_.file("a.delta.safetensors"));
  fs::rename(folder_.file("org"), folder_.file("other"));
  until([&] { return !has("a") && has("other/new/b") && !has("org/new/b"); });
}

TEST_F(FolderWatcherTest, ANameThatIsTakenIsLeftToWhoHasIt) {
  put(folder_.file("base.delta.safetensors"));
  put(folder_.file("configured.delta.safetensors"));
  put(folder_.file("z.delta.safetensors"));
  start(folder_.path());
  until([&] { return has("z"); });
  fs::remove(folder_.file("configured.delta.safetensors"));
  fs::remove(folder_.file("z.delta.safetensors"));
  until([&] { return !has("z"); });
  EXPECT_EQ(path_of("configured"), configured_);
  EXPECT_FALSE(has("base"));
  // What somebody else removed comes back when its file changes; what he gave another file is his.
  put(folder_.file("y.delta.safetensors"));
  until([&] { return has("y"); });
  ASSERT_TRUE(router_->remove("y").ok());
  put(folder_.file("y.delta.safetensors"));
  until([&] { return has("y"); });
  ASSERT_TRUE(router_->replace({"y", configured_}).ok());
  put(folder_.file("y.delta.safetensors"));
  put(folder_.file("z.delta.safetensors"));
  until([&] { return has("z"); });
  EXPECT_EQ(path_of("y"), configured_);
}

TEST_F(FolderWatcherTest, ABadFileIsTakenOnceItIsGood) {
  start(folder_.path());
  put(folder_.file("a.delta.safetensors"), "bad");
  put(folder_.file("b.delta.safetensors"));
  until([&] { return has("b"); });
  EXPECT_FALSE(has("a"));
  put(folder_.file("a.delta.safetensors"));
  until([&] { return has("a"); });
}

TEST_F(FolderWatcherTest, TheFolderItselfMayComeAndGo) {
  const std::string root = folder_.file("above/variants");
  start(root);
  fs::create_directory(folder_.file("above"));
  put(root + "/a.delta.safetensors");
  until([&] { return has("a"); });
  fs::remove_all(root);
  until([&] { return !has("a"); });
  put(root + "/b.delta.safetensors");
  until([&] { return has("b"); });
  fs::rename(folder_.file("above"), folder_.file("away"));
  until([&] { return !has("b"); });
  fs::rename(folder_.file("away"), folder_.file("above"));
  until([&] { return has("b"); });
}

// As a deployment does it: a link is turned to the next version of everything.
TEST_F(FolderWatcherTest, LinksMayBeTurned) {
  put(outside_.file("v1/a.delta.safetensors"));
  put(outside_.file("v2/b.delta.safetensors"));
  const auto turn = [&](const std::string& link, const std::string& to) {
    fs::create_symlink(to, link + ".tmp");
    fs::rename(link + ".tmp", link);
  };
  turn(folder_.file("current"), outside_.file("v1"));
  start(folder_.file("current"));
  until([&] { return has("a"); });
  turn(folder_.file("current"), outside_.file("v2"));
  until([&] { return has("b") && !has("a"); });
  // The target of a link to a file, changed where it lies.
  turn(outside_.file("v2/c.delta.safetensors"), outside_.write("target", "bad"));
  put(outside_.file("v2/d.delta.safetensors"));
  until([&] { return has("d"); });
  EXPECT_FALSE(has("c"));
  outside_.write("target", "good");
  until([&] { return has("c"); });
}

TEST_F(FolderWatcherTest, StopsWhileFilesCome) {
  start(folder_.path());
  for (int i = 0; i < 50; ++i) put(folder_.file(std::to_string(i) + ".delta.safetensors"));
  watcher_->stop();
  watcher_.reset();
  const size_t taken = router_->variants().size();
  put(folder_.file("late.delta.safetensors"));
  start(folder_.path());
  until([&] { return router_->variants().size() == 52 && has("late"); });
  EXPECT_LE(taken, 51u);
}

// More events than the kernel keeps: what is lost is made up for by looking.
TEST(FolderInotify, AnOverflowMatters) {
  testing::TempFolder folder;
  auto made = FolderInotify::make(folder.path());
  ASSERT_TRUE(made.ok());
  FolderInotify& inotify = **made;
  inotify.begin();
  inotify.watch(folder.path());
  EXPECT_EQ(inotify.end(), "");
  EXPECT_FALSE(inotify.take());
  int64_t limit = 16384;
  std::ifstream("/proc/sys/fs/inotify/max_queued_events") >> limit;
  if (limit > 100000) GTEST_SKIP() << "this system keeps " << limit << " events";
  for (int64_t i = 0; i <= limit + 1; ++i)
    std::ofstream(folder.file(i % 2 == 0 ? "x" : "y"), std::ios::app).close();
  EXPECT_TRUE(inotify.take());
  EXPECT_FALSE(inotify.take());
  // Elsewhere nothing matters, and a folder that is no longer watched is forgotten.
  inotify.begin();
  EXPECT_EQ(inotify.end(), "");
  fs::create_directory(folder.file("z"));
  EXPECT_FALSE(inotify.take());
}

}  // namespace
}  // namespace deltad
