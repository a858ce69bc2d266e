// PrometheusText: writes the text form that Prometheus reads, and Histogram, what it shows of a
// distribution. Not locked.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
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

class PrometheusText {
 public:
  using Labels = std::vector<std::pair<std::string_view, std::string>>;

  // Begins a family; type: "counter", "gauge", "histogram".
  void family(std::string_view name, std::string_view type, std::string_view help);
  // A sample of the family begun last.
  void sample(const Labels& labels, double value);
  void histogram(const Labels& labels, const Histogram& histogram);

  const std::string& text() const { return text_; }

 private:
  void line(std::string_view suffix, const Labels& labels, std::string_view le, double value);

  std::string text_, name_;
};

}  // namespace deltad
