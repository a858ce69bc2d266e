// ReleaseBox: where the handles of requests in flight report that they are gone. The last copy of a
// handle may be dropped by any thread, under any lock of others, and after the router itself: so
// this box is all that it touches.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "delta/variant.h"
#include "router/eviction_policy.h"

namespace deltad {

class ReleaseBox {
 public:
  // wake: called after each release, under no lock of the box.
  explicit ReleaseBox(std::function<void()> wake = nullptr) : wake_(std::move(wake)) {}
  std::vector<VariantId> take() EXCLUDES(mutex_);

  // A handle for one request: the variant, and its place among those in flight until the last copy
  // of the handle is gone, whoever drops it and why.
  static VariantRef handle(const std::shared_ptr<ReleaseBox>& box, VariantRef variant,
                           VariantId id);

 private:
  void put(VariantId id) EXCLUDES(mutex_);

  const std::function<void()> wake_;
  Mutex mutex_;
  std::vector<VariantId> released_ GUARDED_BY(mutex_);
};

}  // namespace deltad
