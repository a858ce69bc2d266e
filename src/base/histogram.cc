#include "base/histogram.h"

#include <algorithm>
#include <utility>

namespace deltad {

Histogram::Histogram(std::vector<double> bounds)
    : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}

void Histogram::observe(double value) {
  const auto it = std::lower_bound(bounds_.begin(), bounds_.end(), value);
  ++counts_[static_cast<size_t>(it - bounds_.begin())];
  ++total_;
  sum_ += value;
}

}  // namespace deltad
