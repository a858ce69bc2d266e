#include "tests/support/ptx/memory.h"

namespace deltad::ptx {

std::string Memory::describe(uint64_t address) const {
  const Buffer* below = nullptr;
  for (const Buffer& b : buffers_) {
    if (b.address <= address && (below == nullptr || b.address > below->address)) below = &b;
  }
  if (below == nullptr) return "below every buffer";
  return "byte " + std::to_string(address - below->address) + " of " + below->name + " (" +
         std::to_string(below->bytes) + " bytes" + (below->writable ? ")" : ", read only)");
}

}  // namespace deltad::ptx
