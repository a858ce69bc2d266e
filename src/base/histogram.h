// Histogram: how many values fell between which bounds, and their sum. Not locked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace deltad {

class Histogram {
 public:
  explicit Histogram(std::vector<double> bounds);  // rising; +Inf is added
  void observe(double value);

  const std::vector<double>& bounds() const { return bounds_; }
  // Of bucket i alone, not of those below it; i = bounds().size() is +Inf.
  uint64_t count(size_t i) const { return counts_[i]; }
  uint64_t total() const { return total_; }
  double sum() const { return sum_; }

 private:
  std::vector<double> bounds_;
  std::vector<uint64_t> counts_;
  uint64_t total_ = 0;
  double sum_ = 0;
};

}  // namespace deltad
