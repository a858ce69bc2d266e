// 95 % intervals for what an evaluation measures. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace deltad {

struct Interval {
  double low = 0, high = 0;
};

// Wilson's score interval for a proportion of `hits` in `n`; [0, 1] for n = 0.
Interval wilson_interval(int64_t hits, int64_t n);

// A mean over tokens that come in passages. Tokens of one passage are not independent, so the
// passages are the sample: the normal interval of a ratio estimator, with the variance from the
// passages' own sums.
class PassageMean {
 public:
  void add(double sum, int64_t tokens);
  int64_t tokens() const { return tokens_; }
  double mean() const;  // 0 without tokens
  // None with fewer than two passages.
  std::optional<Interval> interval() const;

 private:
  struct Part {
    double sum;
    int64_t tokens;
  };
  std::vector<Part> parts_;
  double sum_ = 0;
  int64_t tokens_ = 0;
};

}  // namespace deltad
