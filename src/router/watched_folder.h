// WatchedFolder: what follows from the looks at a folder of variants: which are added, replaced and
// removed. A pure state machine without threads or I/O: its caller says when something stirred in
// the folder, shows it what lies there when it wants to look, carries out what it says and tells it
// what came of it. Only what lies there counts, never what happened: so lost, late and repeated
// events do no harm. Used by FolderWatcher on its thread, and by tests with a clock of their own.
//
// What is new or changed is taken once it has not changed for the settle time; so is a file that
// has gone missing, which may be about to come back. What cannot be taken is not tried again until
// it changes, except after a failure that may pass.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "router/folder_listing.h"

namespace deltad {

struct FolderAction {
  enum class Kind { kAdd, kReplace, kRemove };
  Kind kind = Kind::kAdd;
  std::string name, path;
};

class WatchedFolder {
 public:
  explicit WatchedFolder(Duration settle) : settle_(settle) {}

  // Something may have changed in the folder: wake_time() says when to look.
  void stirred(TimePoint now);
  // Each action is to be answered with done(), at once.
  std::vector<FolderAction> look(const FolderListing& listing, TimePoint now);
  // After a failed replacement the old version still serves.
  void done(const FolderAction& action, const Status& status, TimePoint now);

  // When to look (max: nothing to wait for).
  TimePoint wake_time() const;
  // A look is due soon whatever else happens in the folder.
  bool about_to_look() const { return look_at_ != TimePoint::max(); }

 private:
  using Stamp = std::vector<int64_t>;
  struct Variant {
    std::string path;
    Stamp seen;          // at the last look; empty: missing
    Stamp taken;         // of the version that serves; empty: none does
    bool to_do = false;  // what was seen last is to be taken (or, missing, removed) …
    TimePoint due = TimePoint::max();  // … then
    Duration back_off{};               // after a failure that may pass
  };

  void see(Variant& variant, const ListedVariant& listed, TimePoint now);

  const Duration settle_;
  std::map<std::string, Variant> variants_;
  TimePoint last_look_{};
  TimePoint look_at_ = TimePoint::max();  // because something stirred
};

}  // namespace deltad
