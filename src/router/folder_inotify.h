// FolderInotify: tells that something stirred in a folder tree, or on the way to it. A thin cover
// of inotify; used by one thread.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>

#include "base/status.h"

namespace deltad {

class FolderInotify {
 public:
  static Result<std::unique_ptr<FolderInotify>> make(const std::string& root);  // absolute
  ~FolderInotify();
  FolderInotify(const FolderInotify&) = delete;
  FolderInotify& operator=(const FolderInotify&) = delete;

  int descriptor() const { return fd_; }  // readable: take()
  // Takes all events; whether one of them matters.
  bool take();

  // Between the two, watch() is told all that is to be watched; what no longer is gets forgotten.
  // The way to the root is watched too, so that its coming and going is seen.
  void begin();
  void watch(const std::string& path);
  // A reason, if not all could be watched.
  std::string end();

 private:
  FolderInotify(int fd, std::string root) : fd_(fd), root_(std::move(root)) {}
  bool add(const std::string& path, uint32_t mask, const std::string& only);
  void watch_way();

  const int fd_;
  const std::string root_;
  std::map<int, std::string> watches_;  // → the one name that matters there; "": all do
  std::set<int> renewed_;
  std::string problem_;
};

}  // namespace deltad
