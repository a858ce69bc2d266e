// FilePoll: calls back when files change that are read anew while the server runs (API keys,
// certificates). Asks for their state about once a second, so it sees whatever replaces a file: a
// rename, a link swapped as Kubernetes does, a remote disk. A change is reported once the file has
// stood still for one round, so that it is not read half written. Owns one thread.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"

namespace deltad {

class FilePoll {
 public:
  explicit FilePoll(Duration every = std::chrono::seconds(1));
  ~FilePoll();  // ends the thread; no callback runs after it

  // changed runs on the poll's thread. What happened to the files before this call is not seen.
  void add(const std::vector<std::string>& files, std::function<void()> changed) EXCLUDES(mutex_);

 private:
  struct Watched {
    std::vector<std::string> files;
    std::function<void()> changed;
    std::string known, last;  // the states at the last report and in the last round
  };

  void run() EXCLUDES(mutex_);

  const Duration every_;
  Mutex mutex_;
  CondVar wake_;
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::vector<Watched> watched_ GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace deltad
