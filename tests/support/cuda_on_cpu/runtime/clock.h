// A vector clock: how far each timeline (the host, a stream, a branch of a graph) was when
// something happened. What a clock knows of has happened before.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace deltad::emulated_gpu {

using Timeline = uint32_t;

class Clock {
 public:
  void join(const Clock& other) {
    if (times_.size() < other.times_.size()) times_.resize(other.times_.size(), 0);
    for (size_t i = 0; i < other.times_.size(); ++i)
      times_[i] = std::max(times_[i], other.times_[i]);
  }
  void set(Timeline timeline, uint32_t time) {
    if (times_.size() <= timeline) times_.resize(timeline + 1, 0);
    times_[timeline] = time;
  }
  bool knows(Timeline timeline, uint32_t time) const {
    return timeline < times_.size() && times_[timeline] >= time;
  }

 private:
  std::vector<uint32_t> times_;
};

}  // namespace deltad::emulated_gpu
