#include "router/release_box.h"

#include <utility>

#include "base/check.h"

namespace deltad {

void ReleaseBox::put(VariantId id) {
  {
    MutexLock lock(mutex_);
    released_.push_back(id);
  }
  if (wake_) wake_();
}

std::vector<VariantId> ReleaseBox::take() {
  MutexLock lock(mutex_);
  return std::exchange(released_, {});
}

VariantRef ReleaseBox::handle(const std::shared_ptr<ReleaseBox>& box, VariantRef variant,
                              VariantId id) {
  const Variant* raw = variant.get();
  CHECK(raw != nullptr, "a request in flight on a variant that is not there");
  return VariantRef(raw, [box, inner = std::move(variant), id](const Variant*) mutable {
    inner.reset();  // before it is told
    box->put(id);
  });
}

}  // namespace deltad
