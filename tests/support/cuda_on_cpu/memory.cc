#include "tests/support/cuda_on_cpu/memory.h"

#include <string>

#include "tests/support/cuda_on_cpu/global_memory.h"
#include "tests/support/cuda_on_cpu/machine.h"

namespace deltad::emulator {
namespace {

void check_shared(size_t offset, size_t bytes, size_t alignment, Where where) {
  Machine& machine = *current->block->machine;
  const size_t size = current->block->shared.size();
  if (offset % alignment != 0) {
    machine.fail(FaultKind::kMisaligned, *current, where, [&] {
      return std::to_string(bytes) + " bytes of shared memory at " + std::to_string(offset);
    });
  }
  if (offset + bytes > size) {
    machine.fail(FaultKind::kSharedBounds, *current, where, [&] {
      return std::to_string(bytes) + " bytes at " + std::to_string(offset) + " of " +
             std::to_string(size);
    });
  }
}

const GlobalRange& check_global(const void* address, size_t bytes, size_t alignment, Where where) {
  Machine& machine = *current->block->machine;
  GlobalMemory& memory = GlobalMemory::instance();
  if (reinterpret_cast<uintptr_t>(address) % alignment != 0) {
    machine.fail(FaultKind::kMisaligned, *current, where,
                 [&] { return std::to_string(bytes) + " bytes " + memory.describe(address); });
  }
  const GlobalRange* range = memory.find(address, bytes);
  if (range == nullptr) {
    machine.fail(FaultKind::kGlobalBounds, *current, where,
                 [&] { return std::to_string(bytes) + " bytes " + memory.describe(address); });
  }
  if (range->access == Access::kForbidden) {
    machine.fail(FaultKind::kGlobalBounds, *current, where, [&] {
      return std::to_string(bytes) + " bytes " + memory.describe(address) + ": not to be touched";
    });
  }
  return *range;
}

void check_previous(const GlobalRange& range, Where where) {
  Machine& machine = *current->block->machine;
  if (range.access == Access::kRead || range.access == Access::kShared) return;
  if (machine.may_touch_step()) return;
  machine.fail(FaultKind::kStale, *current, where, [&] {
    return "touches " + range.name + " before it has waited for the kernel before";
  });
}

// Notes the access; returns where its bytes are.
std::byte* take_note(const GlobalRange& range, const void* address, size_t bytes, bool write) {
  auto* byte = static_cast<std::byte*>(const_cast<void*>(address));
  if (range.log != nullptr) {
    range.log->note(static_cast<size_t>(byte - range.base), bytes, write,
                    !current->block->machine->may_touch_step());
  }
  return byte + range.alias;
}

}  // namespace

const std::byte* shared_read(size_t offset, size_t bytes, Where where) {
  check_shared(offset, bytes, bytes, where);
  Block& block = *current->block;
  block.machine->note(AccessKind::kSharedRead, offset, bytes, where);
  block.machine->check(block.races->read(current->clock, block.shared_at + offset, bytes), *current,
                       false, where);
  return block.shared.data() + offset;
}

std::byte* shared_write(size_t offset, size_t bytes, Where where) {
  check_shared(offset, bytes, bytes, where);
  Block& block = *current->block;
  block.machine->note(AccessKind::kSharedWrite, offset, bytes, where);
  block.machine->check(block.races->write(current->clock, block.shared_at + offset, bytes),
                       *current, true, where);
  return block.shared.data() + offset;
}

std::byte* shared_target(size_t offset, size_t bytes, size_t alignment, Where where) {
  check_shared(offset, bytes, alignment, where);
  return current->block->shared.data() + offset;
}

uint32_t shared_add(size_t offset, uint32_t value, Where where) {
  check_shared(offset, sizeof value, sizeof value, where);
  Block& block = *current->block;
  block.machine->note(AccessKind::kSharedWrite, offset, sizeof value, where);
  block.machine->check(block.races->update(current->clock, block.shared_at + offset), *current,
                       true, where);
  uint32_t old;
  std::memcpy(&old, block.shared.data() + offset, sizeof old);
  value += old;
  std::memcpy(block.shared.data() + offset, &value, sizeof value);
  return old;
}

const std::byte* global_read(const void* address, size_t bytes, Where where) {
  const GlobalRange& range = check_global(address, bytes, bytes, where);
  check_previous(range, where);
  current->block->machine->note(AccessKind::kGlobalRead, reinterpret_cast<uint64_t>(address), bytes,
                                where);
  if (range.access == Access::kMessage) {
    const auto* word = static_cast<const std::byte*>(address);
    for (size_t i = 0; i < bytes; i += 4) {
      current->block->machine->check_message_load(word + i, where);
    }
  }
  return take_note(range, address, bytes, false);
}

std::byte* global_write(void* address, size_t bytes, Where where) {
  const GlobalRange& range = check_global(address, bytes, bytes, where);
  Machine& machine = *current->block->machine;
  check_previous(range, where);
  if (range.access == Access::kRead || range.access == Access::kFresh) {
    machine.fail(FaultKind::kGlobalBounds, *current, where,
                 [&] { return "a write to " + range.name + ", which is read only"; });
  }
  machine.note(AccessKind::kGlobalWrite, reinterpret_cast<uint64_t>(address), bytes, where);
  if (range.access == Access::kMessage) {
    auto* word = static_cast<std::byte*>(address);
    for (size_t i = 0; i < bytes; i += 4) machine.note_message_store(word + i);
  }
  return take_note(range, address, bytes, true);
}

const std::byte* global_read_bulk(const void* address, size_t bytes, Where where) {
  const GlobalRange& range = check_global(address, bytes, 16, where);
  check_previous(range, where);
  return take_note(range, address, bytes, false);
}

void global_bounds(const void* address, size_t bytes, Where where) {
  check_global(address, bytes, 16, where);
}

bool guard(bool condition, Where where) {
  return !current->block->machine->on(SiteKind::kGuard, where) || condition;
}

}  // namespace deltad::emulator
