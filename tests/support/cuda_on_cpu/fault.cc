#include "tests/support/cuda_on_cpu/fault.h"

#include <array>

#include "tests/support/cuda_on_cpu/site.h"

namespace deltad::emulator {

std::string Fault::text() const {
  if (kind == FaultKind::kOther) return what;
  constexpr std::array<const char*, 11> names = {
      "deadlock",      "divergence", "bad lane",      "shared memory bounds",
      "global bounds", "misaligned", "uninitialised", "copy in flight",
      "race",          "stale",      "remote"};
  return std::string(names[static_cast<size_t>(kind)]) + " at " + text_of(where) + ", block (" +
         std::to_string(block.x) + ", " + std::to_string(block.y) + ", " + std::to_string(block.z) +
         "), thread " + std::to_string(thread) + ": " + what;
}

}  // namespace deltad::emulator
