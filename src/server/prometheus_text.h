// PrometheusText: writes the text form that Prometheus reads. Not locked.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/histogram.h"

namespace deltad {

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
