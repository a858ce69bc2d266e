// Reads a metrics page.
#pragma once

#include <sstream>
#include <string>

namespace deltad::testing {

// The value of a sample line; −1 if there is none.
inline double sample(const std::string& page, const std::string& line_start) {
  std::istringstream lines(page);
  for (std::string line; std::getline(lines, line);) {
    if (line.compare(0, line_start.size() + 1, line_start + " ") == 0) {
      return std::stod(line.substr(line_start.size() + 1));
    }
  }
  return -1;
}

}  // namespace deltad::testing
