#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace deltad {

void check_failed(const char* file, int line, const char* condition, const char* message) {
  std::fprintf(stderr, "%s:%d: CHECK(%s) failed: %s\n", file, line, condition, message);
  std::abort();
}

}  // namespace deltad
