#include "tests/support/cuda_on_cpu/global_memory.h"

namespace deltad::emulator {

GlobalMemory& GlobalMemory::instance() {
  // Never destroyed, as emulated GPUs may work until the program ends.
  static auto& memory = *new GlobalMemory;
  return memory;
}

void GlobalMemory::add(GlobalRange range) {
  const std::byte* base = range.base;
  ranges_.insert_or_assign(base, std::move(range));
}

void GlobalMemory::remove(const std::byte* base) {
  last_ = nullptr;
  ranges_.erase(base);
}

const GlobalRange* GlobalMemory::find(const void* address, size_t bytes) {
  const auto* first = static_cast<const std::byte*>(address);
  const auto holds = [&](const GlobalRange& r) {
    return first >= r.base && first + bytes <= r.base + r.bytes;
  };
  if (last_ != nullptr && holds(*last_)) return last_;
  auto found = ranges_.upper_bound(first);
  if (found == ranges_.begin()) return nullptr;
  --found;
  if (!holds(found->second)) return nullptr;
  last_ = &found->second;
  return last_;
}

std::string GlobalMemory::describe(const void* address) const {
  const auto* first = static_cast<const std::byte*>(address);
  auto found = ranges_.upper_bound(first);
  if (found == ranges_.begin()) return "below every buffer";
  --found;
  return "at byte " + std::to_string(first - found->second.base) + " of " + found->second.name +
         ", which has " + std::to_string(found->second.bytes);
}

}  // namespace deltad::emulator
