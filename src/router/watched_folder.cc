#include "router/watched_folder.h"

#include <algorithm>

namespace deltad {
namespace {

// While something stirs all the time (a large file is copied), this many looks a settle time.
constexpr int kLooks = 4;
constexpr Duration kFirstBackOff = std::chrono::seconds(1);
constexpr Duration kLongestBackOff = std::chrono::seconds(60);

bool may_pass(const Status& status) {
  return status.code() == Code::kUnavailable || status.code() == Code::kInternal ||
         status.code() == Code::kResourceExhausted;
}

bool unread(const FolderListing& listing, const std::string& name) {
  return std::any_of(listing.unread.begin(), listing.unread.end(), [&](const std::string& prefix) {
    return name.compare(0, prefix.size(), prefix) == 0;
  });
}

}  // namespace

void WatchedFolder::stirred(TimePoint now) {
  if (look_at_ == TimePoint::max()) look_at_ = std::max(now, last_look_ + settle_ / kLooks);
}

void WatchedFolder::see(Variant& variant, const ListedVariant& listed, TimePoint now) {
  const bool same_path = variant.path == listed.path;
  if (same_path && variant.seen == listed.stamp) return;
  variant.path = listed.path;
  variant.seen = listed.stamp;
  variant.to_do = !same_path || listed.stamp != variant.taken;
  variant.due = now + settle_ - std::clamp(listed.age, Duration::zero(), settle_);
  variant.back_off = {};
}

std::vector<FolderAction> WatchedFolder::look(const FolderListing& listing, TimePoint now) {
  last_look_ = now;
  look_at_ = TimePoint::max();
  for (const auto& [name, listed] : listing.variants) see(variants_[name], listed, now);
  for (auto& [name, variant] : variants_) {
    if (listing.variants.count(name) > 0 || variant.seen.empty()) continue;
    if (unread(listing, name)) {
      variant.due = std::max(variant.due, now + settle_);
      continue;
    }
    variant.seen.clear();
    variant.to_do = true;
    variant.due = variant.taken.empty() ? now : now + settle_;
  }

  std::vector<FolderAction> removals, others;
  for (auto it = variants_.begin(); it != variants_.end();) {
    const auto& [name, variant] = *it;
    if (!variant.to_do || variant.due > now) {
      ++it;
      continue;
    }
    const bool serves = !variant.taken.empty();
    if (!variant.seen.empty())
      others.push_back(
          {serves ? FolderAction::Kind::kReplace : FolderAction::Kind::kAdd, name, variant.path});
    else if (serves)
      removals.push_back({FolderAction::Kind::kRemove, name, variant.path});
    it = variant.seen.empty() ? variants_.erase(it) : std::next(it);
  }
  removals.insert(removals.end(), others.begin(), others.end());
  return removals;
}

void WatchedFolder::done(const FolderAction& action, const Status& status, TimePoint now) {
  const auto it = variants_.find(action.name);
  if (it == variants_.end()) return;  // a removal
  Variant& variant = it->second;
  if (status.ok()) variant.taken = variant.seen;
  variant.to_do = may_pass(status);
  if (!variant.to_do) return;
  variant.back_off = variant.back_off == Duration::zero()
                         ? kFirstBackOff
                         : std::min(2 * variant.back_off, kLongestBackOff);
  variant.due = now + variant.back_off;
}

TimePoint WatchedFolder::wake_time() const {
  TimePoint wake = look_at_;
  for (const auto& [name, variant] : variants_)
    if (variant.to_do) wake = std::min(wake, variant.due);
  return wake;
}

}  // namespace deltad
