#include "router/folder_watcher.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <map>
#include <set>
#include <system_error>
#include <thread>

#include "base/log.h"
#include "io/quote.h"
#include "router/folder_inotify.h"
#include "router/folder_listing.h"
#include "router/watched_folder.h"

namespace deltad {
namespace {

class FolderWatcherImpl final : public FolderWatcher {
 public:
  FolderWatcherImpl(const std::string& root, Duration settle,
                    std::unique_ptr<FolderInotify> inotify, int wake, Router& router)
      : root_(root), router_(router), inotify_(std::move(inotify)), wake_(wake), folder_(settle) {}

  ~FolderWatcherImpl() override {
    stop();
    if (thread_.joinable()) thread_.join();
    close(wake_);
  }

  void begin() {
    look();
    thread_ = std::thread([this] { loop(); });
  }

  void stop() override {
    stopping_ = true;
    const uint64_t one = 1;
    // Fails only if it is set already.
    [[maybe_unused]] const ssize_t written = write(wake_, &one, sizeof(one));
  }

 private:
  void loop() {
    while (!stopping_) {
      wait();
      if (inotify_->take()) folder_.stirred(Clock::real().now());
      if (!stopping_ && folder_.wake_time() <= Clock::real().now()) look();
    }
  }

  // Until something stirs or it is time to look. With a look ahead, what stirs is not of interest:
  // a file that is copied wakes nobody at each of its writes.
  void wait() {
    pollfd fds[] = {{wake_, POLLIN, 0}, {inotify_->descriptor(), POLLIN, 0}};
    const TimePoint wake = folder_.wake_time();
    int milliseconds = -1;
    if (wake != TimePoint::max()) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(wake - Clock::real().now());
      milliseconds = static_cast<int>(std::clamp<int64_t>(left.count(), 0, 3600 * 1000));
    }
    if (poll(fds, folder_.about_to_look() ? 1 : 2, milliseconds) < 0 && errno != EINTR)
      log_error("watched folder {}: poll: {}", root_, std::generic_category().message(errno));
  }

  void look() {
    inotify_->begin();
    FolderListing listing =
        list_folder(root_, [this](const std::string& path) { inotify_->watch(path); });
    if (const std::string problem = inotify_->end(); !problem.empty())
      listing.problems.push_back(problem + "; what changes there goes unnoticed");
    std::set<std::string> problems(listing.problems.begin(), listing.problems.end());
    for (const std::string& problem : problems)
      if (problems_.count(problem) == 0) log_warning("watched folder {}: {}", root_, problem);
    problems_.swap(problems);
    std::vector<FolderAction> actions = folder_.look(listing, Clock::real().now());
    if (actions.empty()) return;
    // Replacements read whole files: what is quick does not wait for them.
    std::stable_partition(actions.begin(), actions.end(), [](const FolderAction& action) {
      return action.kind != FolderAction::Kind::kReplace;
    });
    for (const FolderAction& action : actions) {
      if (stopping_) return;
      const Result<VariantInfo> holder = router_.variant(action.name);
      const Status status = perform(action, holder.ok() ? holder->path : "");
      if (!status.ok() && !stopping_)
        log_warning("watched folder {}: {} is not taken: {}", root_, quoted_name(action.path),
                    status.message());
      folder_.done(action, status, Clock::real().now());
    }
  }

  // holder: the path that the name stands for in the catalog, "" if there is none. What others did
  // to a name meanwhile is respected: it is theirs then.
  Status perform(const FolderAction& action, const std::string& holder) {
    const auto ours = ours_.find(action.name);
    if (!holder.empty() && (ours == ours_.end() || holder != ours->second))
      return invalid_argument(
          fmt::format("the name {} is taken by {}", quoted_name(action.name), quoted_name(holder)));
    if (action.kind == FolderAction::Kind::kRemove) {
      const Status status = holder.empty() ? Status() : router_.remove(action.name);
      if (status.ok()) log_info("variant {} removed: {} has gone", action.name, action.path);
      ours_.erase(action.name);
      return status.code() == Code::kNotFound ? Status() : status;
    }
    const VariantSource source{action.name, action.path};
    const Status status = holder.empty() ? router_.add(source) : router_.replace(source);
    if (!status.ok()) return status;
    ours_[action.name] = action.path;
    if (holder.empty()) log_info("variant {} added: {}", action.name, action.path);
    return status;
  }

  const std::string root_;
  Router& router_;
  const std::unique_ptr<FolderInotify> inotify_;
  const int wake_;  // an eventfd: stop() was called
  std::atomic<bool> stopping_{false};
  std::thread thread_;

  // The thread's; before it begins, of who starts it.
  WatchedFolder folder_;
  std::set<std::string> problems_;           // of the last look
  std::map<std::string, std::string> ours_;  // name → the path that it was given
};

}  // namespace

Result<std::unique_ptr<FolderWatcher>> FolderWatcher::start(const WatchOptions& options,
                                                            Router& router) {
  namespace fs = std::filesystem;
  std::error_code error;
  fs::path root = fs::absolute(options.folder, error).lexically_normal();
  if (!root.has_filename()) root = root.parent_path();
  ASSIGN_OR_RETURN(auto inotify, FolderInotify::make(root.string()));
  const int wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake < 0)
    return internal_error(fmt::format("cannot watch the folder {}: {}", root.string(),
                                      std::generic_category().message(errno)));
  auto watcher = std::make_unique<FolderWatcherImpl>(root.string(), options.settle,
                                                     std::move(inotify), wake, router);
  watcher->begin();
  return std::unique_ptr<FolderWatcher>(std::move(watcher));
}

}  // namespace deltad
