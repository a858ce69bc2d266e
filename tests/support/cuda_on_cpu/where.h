// A line of a kernel's source: what faults name and what sites are keyed by.
// (std::source_location is not there in Clang 14.)
#pragma once

namespace deltad::emulator {

struct Where {
  const char* file = "";
  int line = 0;

  // As a default argument it is the place of the call.
  static constexpr Where here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
};

}  // namespace deltad::emulator
