// CHECK: for a programmer's errors only. Bad input never reaches one; it gets a Status
// (base/status.h).
#pragma once

namespace deltad {
[[noreturn]] void check_failed(const char* file, int line, const char* condition,
                               const char* message);
}

#define CHECK(condition, message)                                                      \
  do {                                                                                 \
    if (!(condition)) ::deltad::check_failed(__FILE__, __LINE__, #condition, message); \
  } while (0)
