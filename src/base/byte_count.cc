#include "base/byte_count.h"

#include <exception>

namespace deltad {

std::optional<int64_t> byte_count(const std::string& text) {
  size_t end = 0;
  double number = 0;
  try {
    number = std::stod(text, &end);
  } catch (const std::exception&) {
    return std::nullopt;
  }
  std::string unit = text.substr(end);
  unit.erase(0, unit.find_first_not_of(' ') == std::string::npos ? unit.size()
                                                                 : unit.find_first_not_of(' '));
  double factor = 0;
  if (unit.empty() || unit == "B") factor = 1;
  if (unit == "KiB") factor = 1024.0;
  if (unit == "MiB") factor = 1024.0 * 1024;
  if (unit == "GiB") factor = 1024.0 * 1024 * 1024;
  const double bytes = number * factor;
  if (factor == 0 || !(bytes >= 1) || bytes > 1e15) return std::nullopt;
  return static_cast<int64_t>(bytes);
}

}  // namespace deltad
