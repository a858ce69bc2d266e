// BoundedCounts: a set of counts for each of a bounded number of names, and one for all others
// together. When a new name finds no place, the one used least recently gives its own up, and what
// it has counted goes to the others: no count is lost, and that of the others never falls. A name
// that comes back begins at zero. Not locked.
#pragma once

#include <cstddef>
#include <iterator>
#include <list>
#include <string>
#include <unordered_map>
#include <utility>

namespace deltad {

template <typename Counts>  // a value that += adds to
class BoundedCounts {
 public:
  using Own = std::pair<std::string, Counts>;
  explicit BoundedCounts(size_t most) : most_(most) {}

  // Of this name, which is the one used last from now on.
  Counts& of(const std::string& name) {
    const auto it = index_.find(name);
    if (it != index_.end()) {
      own_.splice(own_.begin(), own_, it->second);
      return own_.front().second;
    }
    if (own_.size() >= most_) forget(std::string(own_.back().first));
    own_.emplace_front(name, Counts{});
    index_.emplace(name, own_.begin());
    return own_.front().second;
  }
  // A place for a name that was never used, if one is free: behind all others.
  void offer(const std::string& name) {
    if (own_.size() >= most_ || index_.count(name) > 0) return;
    own_.emplace_back(name, Counts{});
    index_.emplace(name, std::prev(own_.end()));
  }
  void forget(const std::string& name) {
    const auto it = index_.find(name);
    if (it == index_.end()) return;
    others_ += it->second->second;
    own_.erase(it->second);
    index_.erase(it);
  }

  // Null if the name has no place.
  const Counts* find(const std::string& name) const {
    const auto it = index_.find(name);
    return it == index_.end() ? nullptr : &it->second->second;
  }
  const std::list<Own>& own() const { return own_; }  // the one used last first
  const Counts& others() const { return others_; }
  Counts& others() { return others_; }

 private:
  const size_t most_;
  std::list<Own> own_;
  std::unordered_map<std::string, typename std::list<Own>::iterator> index_;
  Counts others_{};
};

}  // namespace deltad
