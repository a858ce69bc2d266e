#include "router/folder_inotify.h"

#include <fmt/core.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

namespace deltad {
namespace {

constexpr uint32_t kGone = IN_DELETE_SELF | IN_MOVE_SELF;
constexpr uint32_t kNames = IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO;
constexpr uint32_t kAll = kGone | kNames | IN_MODIFY | IN_ATTRIB | IN_CLOSE_WRITE;

std::string reason(int error) {
  if (error == ENOSPC)
    return "the system's limit of inotify watches is reached (sysctl fs.inotify.max_user_watches)";
  if (error == EMFILE)
    return "the system's limit of inotify instances is reached (sysctl "
           "fs.inotify.max_user_instances)";
  return std::generic_category().message(error);
}

}  // namespace

Result<std::unique_ptr<FolderInotify>> FolderInotify::make(const std::string& root) {
  const int fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
  if (fd < 0)
    return internal_error(fmt::format("cannot watch the folder {}: {}", root, reason(errno)));
  return std::unique_ptr<FolderInotify>(new FolderInotify(fd, root));
}

FolderInotify::~FolderInotify() { close(fd_); }

bool FolderInotify::take() {
  bool matters = false;
  alignas(inotify_event) char buffer[16384];
  for (;;) {
    const ssize_t bytes = read(fd_, buffer, sizeof(buffer));
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes <= 0) return matters;
    for (ssize_t at = 0; at < bytes;) {
      const auto* event = reinterpret_cast<const inotify_event*>(buffer + at);
      at += static_cast<ssize_t>(sizeof(inotify_event) + event->len);
      const auto known = watches_.find(event->wd);
      if ((event->mask & IN_IGNORED) != 0 && known != watches_.end())
        watches_.erase(known);
      else if ((event->mask & (IN_Q_OVERFLOW | kGone)) != 0)
        matters = true;  // after an overflow nobody knows what happened
      else if (known != watches_.end())
        matters =
            matters || known->second.empty() || (event->len > 0 && known->second == event->name);
    }
  }
}

void FolderInotify::begin() {
  renewed_.clear();
  problem_.clear();
  watch_way();
}

void FolderInotify::watch(const std::string& path) { add(path, kAll, ""); }

bool FolderInotify::add(const std::string& path, uint32_t mask, const std::string& only) {
  const int wd = inotify_add_watch(fd_, path.c_str(), mask | IN_MASK_ADD);
  if (wd < 0) {
    // What has gone, or may not be read, is the listing's business.
    if (errno != ENOENT && errno != ENOTDIR && errno != EACCES && errno != ELOOP)
      problem_ = fmt::format("{} cannot be watched: {}", path, reason(errno));
    return false;
  }
  const bool fresh = renewed_.insert(wd).second;
  // The same folder by two ways: all names matter if they do for one.
  if (fresh || only.empty()) watches_[wd] = only;
  return true;
}

// Of the folders above the root, the last that exists is where the next on the way may come or
// change; all of them may be renamed.
void FolderInotify::watch_way() {
  namespace fs = std::filesystem;
  std::string next = fs::path(root_).filename().string();
  bool nearest = true;
  for (fs::path above = fs::path(root_).parent_path();; above = above.parent_path()) {
    const bool there = add(above.string(), nearest ? kGone | kNames | IN_ATTRIB : kGone,
                           nearest ? next : std::string("/"));
    if (there) nearest = false;
    if (above == above.parent_path()) return;
    if (!there) next = above.filename().string();
  }
}

std::string FolderInotify::end() {
  for (auto it = watches_.begin(); it != watches_.end();) {
    if (renewed_.count(it->first) > 0) {
      ++it;
      continue;
    }
    inotify_rm_watch(fd_, it->first);
    it = watches_.erase(it);
  }
  return problem_;
}

}  // namespace deltad
