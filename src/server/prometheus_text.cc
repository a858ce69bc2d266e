#include "server/prometheus_text.h"

#include <fmt/core.h>

#include <cmath>

namespace deltad {
namespace {

std::string number(double value) {
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  if (value == std::floor(value) && std::abs(value) < 9e15) {
    return fmt::format("{}", static_cast<int64_t>(value));
  }
  return fmt::format("{}", value);
}

std::string escaped(std::string_view value) {
  std::string out;
  for (const char c : value) {
    if (c == '\\' || c == '"') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

void PrometheusText::family(std::string_view name, std::string_view type, std::string_view help) {
  name_ = name;
  text_ += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
}

void PrometheusText::sample(const Labels& labels, double value) { line("", labels, "", value); }

void PrometheusText::histogram(const Labels& labels, const Histogram& histogram) {
  uint64_t below = 0;
  for (size_t i = 0; i <= histogram.bounds().size(); ++i) {
    below += histogram.count(i);
    const std::string le =
        i < histogram.bounds().size() ? number(histogram.bounds()[i]) : std::string("+Inf");
    line("_bucket", labels, le, static_cast<double>(below));
  }
  line("_sum", labels, "", histogram.sum());
  line("_count", labels, "", static_cast<double>(histogram.total()));
}

void PrometheusText::line(std::string_view suffix, const Labels& labels, std::string_view le,
                          double value) {
  text_ += name_;
  text_ += suffix;
  std::string inside;
  for (const auto& [name, content] : labels) {
    inside += fmt::format("{}{}=\"{}\"", inside.empty() ? "" : ",", name, escaped(content));
  }
  if (!le.empty()) inside += fmt::format("{}le=\"{}\"", inside.empty() ? "" : ",", le);
  if (!inside.empty()) text_ += "{" + inside + "}";
  text_ += ' ';
  text_ += number(value);
  text_ += '\n';
}

}  // namespace deltad
