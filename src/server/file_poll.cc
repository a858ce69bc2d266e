#include "server/file_poll.h"

#include <fmt/core.h>
#include <sys/stat.h>

#include <utility>

namespace deltad {
namespace {

// What tells a file from what it was: another one, other content, gone.
std::string state_of(const std::vector<std::string>& files) {
  std::string state;
  for (const std::string& file : files) {
    struct stat s {};
    if (::stat(file.c_str(), &s) != 0) {
      state += "none;";
      continue;
    }
    state += fmt::format("{} {} {} {}.{} {}.{};", s.st_dev, s.st_ino, s.st_size, s.st_mtim.tv_sec,
                         s.st_mtim.tv_nsec, s.st_ctim.tv_sec, s.st_ctim.tv_nsec);
  }
  return state;
}

}  // namespace

FilePoll::FilePoll(Duration every) : every_(every), thread_([this] { run(); }) {}

FilePoll::~FilePoll() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    wake_.notify_all();
  }
  thread_.join();
}

void FilePoll::add(const std::vector<std::string>& files, std::function<void()> changed) {
  Watched watched;
  watched.files = files;
  watched.changed = std::move(changed);
  watched.known = watched.last = state_of(files);
  MutexLock lock(mutex_);
  watched_.push_back(std::move(watched));
}

void FilePoll::run() {
  for (;;) {
    std::vector<std::function<void()>> changed;
    {
      MutexLock lock(mutex_);
      const TimePoint next = Clock::real().now() + every_;
      while (!stopping_ && wake_.wait_until(mutex_, next)) {
      }
      if (stopping_) return;
      for (Watched& watched : watched_) {
        const std::string now = state_of(watched.files);
        if (now != watched.known && now == watched.last) {
          watched.known = now;
          changed.push_back(watched.changed);
        }
        watched.last = now;
      }
    }
    for (const auto& callback : changed) callback();
  }
}

}  // namespace deltad
