// FolderWatcher: keeps a router's catalog as a folder of variants says. A thread of its own waits
// on inotify; what it does then is decided in watched_folder.h from what folder_listing.h finds.
// Owned by whoever owns the router, which outlives it.
#pragma once

#include <memory>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "router/router.h"

namespace deltad {

struct WatchOptions {
  std::string folder;                         // need not exist yet; "": none
  Duration settle = std::chrono::seconds(1);  // a file that has not changed for so long is whole
};

class FolderWatcher {
 public:
  // Has taken what lies settled in the folder when it returns. What cannot be taken is said in the
  // log and stops nothing else; an error means that the system lets nobody watch.
  static Result<std::unique_ptr<FolderWatcher>> start(const WatchOptions& options, Router& router);
  virtual ~FolderWatcher() = default;  // waits for the thread

  // Nothing new is begun from now on. Does not wait.
  virtual void stop() = 0;
};

}  // namespace deltad
