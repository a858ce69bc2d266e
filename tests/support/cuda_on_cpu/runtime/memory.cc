#include "tests/support/cuda_on_cpu/runtime/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "tests/support/cuda_on_cpu/global_memory.h"
#include "tests/support/cuda_on_cpu/runtime/gpu.h"
#include "tests/support/cuda_on_cpu/runtime/host_fault.h"

namespace deltad::emulated_gpu {
namespace {

constexpr size_t kAlignment = 512, kGap = 512, kPage = 4096;
constexpr int kPoison = 0xff;
// Of pinned memory: what a daemon sets aside takes memory only as it is used.
constexpr size_t kMostPoisoned = size_t{64} << 20;
// Addresses of a device: many times its memory, as none is given out twice.
constexpr size_t kArenaBytes = size_t{64} << 30;

size_t round_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

std::byte* map(size_t bytes, int protection) {
  void* memory =
      mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  CHECK(memory != MAP_FAILED, "no addresses for the emulated GPU's memory");
  return static_cast<std::byte*>(memory);
}

std::string bytes_text(emulator::Interval bytes) {
  return "bytes " + std::to_string(bytes.begin) + " to " + std::to_string(bytes.end);
}

}  // namespace

std::string Allocation::text() const {
  const std::string whose = kind == MemoryKind::kDevice   ? "device " + std::to_string(device)
                            : kind == MemoryKind::kPinned ? "pinned memory"
                                                          : "registered memory";
  return "allocation " + std::to_string(number) + " of " + whose + ", " + std::to_string(bytes) +
         " bytes, made at " + site.text() + (freed ? ", freed at " + freed_at.text() : "");
}

Memory::Memory(Gpu& gpu) : gpu_(gpu), devices_(static_cast<size_t>(gpu.options.devices)) {
  for (size_t i = 0; i < devices_.size(); ++i) {
    Arena& arena = devices_[i];
    arena.base = map(kArenaBytes, PROT_NONE);
    watch_device_addresses(static_cast<int>(i), arena.base, kArenaBytes);
    arena.alias = map(kArenaBytes, PROT_READ | PROT_WRITE);
    mapped_.emplace_back(arena.base, kArenaBytes);
    mapped_.emplace_back(arena.alias, kArenaBytes);
  }
}

Memory::~Memory() {
  for (const auto& [base, allocation] : all_) emulator::GlobalMemory::instance().remove(base);
  for (const auto& [base, bytes] : mapped_) munmap(base, bytes);
}

Allocation& Memory::add(Allocation made) {
  auto owned = std::make_unique<Allocation>(std::move(made));
  Allocation& allocation = *owned;
  allocation.number = next_number_++;
  allocation.log = std::make_unique<emulator::AccessLog>(allocation.bytes);
  const std::string name = "allocation " + std::to_string(allocation.number);
  if (!allocation.on_device()) {
    allocation.watch = std::make_unique<PinnedWatch>(allocation.base, allocation.bytes);
    pinned_bytes_ += allocation.bytes;
  }
  emulator::GlobalMemory::instance().add({name, allocation.base, allocation.bytes,
                                          emulator::Access::kShared, allocation.log.get(),
                                          allocation.alias});
  all_[allocation.base] = std::move(owned);
  shown_to_ = -1;
  return allocation;
}

size_t Memory::most_bytes() const { return gpu_.options.memory_bytes; }

std::byte* Memory::allocate(int device, size_t bytes, bool pooled, const CallSite& site) {
  Arena& arena = devices_[static_cast<size_t>(device)];
  const size_t addresses = round_up(std::max<size_t>(bytes, 1), kAlignment) + kGap;
  Pool& pool = arena.pool;
  const size_t kept = pooled ? std::min(bytes, pool.idle()) : 0;
  if (bytes - kept > room(device) || arena.used + addresses > kArenaBytes) return nullptr;
  if (pooled) {
    pool.used += bytes;
    pool.reserved = std::max(pool.reserved, pool.used);
  }
  std::byte* base = arena.base + arena.used + kGap;
  arena.used += addresses;
  arena.bytes += bytes;
  arena.peak = std::max(arena.peak, arena.bytes);
  Allocation made{MemoryKind::kDevice, device, 0, base, bytes, arena.alias - arena.base, site};
  made.pooled = pooled;
  std::memset(base + made.alias, kPoison, bytes);
  return add(std::move(made)).base;
}

bool Memory::charge(int device, size_t bytes) {
  Arena& arena = devices_[static_cast<size_t>(device)];
  if (bytes > room(device)) return false;
  arena.bytes += bytes;
  arena.peak = std::max(arena.peak, arena.bytes);
  return true;
}

std::byte* Memory::allocate_pinned(int device, size_t bytes, bool mapped, const CallSite& site) {
  const size_t pages = round_up(std::max<size_t>(bytes, 1), kPage) + kPage;  // and one that faults
  std::byte* base = map(pages, PROT_NONE);
  mapped_.emplace_back(base, pages);
  CHECK(mprotect(base, pages - kPage, PROT_READ | PROT_WRITE) == 0, "no pinned memory");
  if (bytes <= kMostPoisoned) std::memset(base, kPoison, bytes);
  Allocation made{MemoryKind::kPinned, device, 0, base, bytes, 0, site};
  made.mapped = mapped;
  return add(std::move(made)).base;
}

void Memory::add_registered(int device, void* base, size_t bytes, bool mapped,
                            const CallSite& site) {
  Allocation made{
      MemoryKind::kRegistered, device, 0, static_cast<std::byte*>(base), bytes, 0, site};
  made.mapped = mapped;
  add(std::move(made));
}

Allocation* Memory::find(const void* address) {
  const auto* byte = static_cast<const std::byte*>(address);
  auto found = all_.upper_bound(byte);
  if (found == all_.begin()) return nullptr;
  Allocation& allocation = *(--found)->second;
  return byte < allocation.base + std::max<size_t>(allocation.bytes, 1) ? &allocation : nullptr;
}

bool Memory::overlaps(const void* address, size_t bytes) const {
  const auto* first = static_cast<const std::byte*>(address);
  const auto next = all_.lower_bound(first);
  if (next != all_.end() && next->first < first + bytes) return true;
  if (next == all_.begin()) return false;
  const Allocation& before = *std::prev(next)->second;
  return before.base + before.bytes > first;
}

Allocation* Memory::to_free(void* base, MemoryKind kind, const CallSite& site) {
  Allocation* allocation = find(base);
  if (allocation == nullptr || allocation->base != base || allocation->kind != kind) {
    gpu_.fault(FaultKind::kFreed, "frees what is no such allocation at " + site.text() +
                                      (allocation ? ": inside " + allocation->text() : ""));
    return nullptr;
  }
  if (allocation->freed || allocation->leaving) {
    gpu_.fault(FaultKind::kFreed, "frees twice at " + site.text() + ": " + allocation->text());
    return nullptr;
  }
  return allocation;
}

bool Memory::leave(void* base, const CallSite& site) {
  Allocation* allocation = to_free(base, MemoryKind::kDevice, site);
  if (allocation == nullptr) return false;
  give_back(*allocation);
  allocation->leaving = true;
  return true;
}

void Memory::give_back(const Allocation& allocation) {
  Arena& arena = devices_[static_cast<size_t>(allocation.device)];
  arena.bytes -= allocation.bytes;
  if (!allocation.pooled) return;
  arena.pool.used -= allocation.bytes;
  arena.pool.trim(arena.pool.threshold);
}

void Memory::left(void* base, const CallSite& site, const Operation& operation) {
  Allocation& allocation = *find(base);
  allocation.left_on = operation.timeline;
  allocation.left_at = operation.time;
  check_unused(allocation, site, operation.known);
  remove(allocation, site);
}

void Memory::trim(int device, size_t keep) {
  size_t unseen = 0;
  for (const auto& [base, allocation] : all_) {
    if (allocation->device != device || !allocation->pooled || !allocation->leaving) continue;
    const bool seen =
        allocation->freed && gpu_.host.knows(allocation->left_on, allocation->left_at);
    if (!seen) unseen += allocation->bytes;
  }
  Pool& of_device = pool(device);
  of_device.trim(std::max(keep, of_device.used + unseen));
}

bool Memory::free(void* base, MemoryKind kind, const CallSite& site) {
  Allocation* allocation = to_free(base, kind, site);
  if (allocation == nullptr) return false;
  check_unused(*allocation, site, gpu_.host);
  remove(*allocation, site);
  return true;
}

void Memory::check_unused(const Allocation& allocation, const CallSite& site, const Clock& known) {
  // A device that is broken does nothing more, and there is no way to see that.
  if (gpu_.devices[static_cast<size_t>(allocation.device)].error != cudaSuccess) return;
  std::string user;
  if (const auto use = allocation.shadow.unknown(known)) user = use->other.work->text();
  if (user.empty() && allocation.watch) user = allocation.watch->in_use(known);
  for (const auto& pending : gpu_.schedule.pending()) {
    if (gpu_.devices[static_cast<size_t>(pending->work->device)].error != cudaSuccess) continue;
    for (const void* address : pending->work->uses) {
      if (user.empty() && find(address) == &allocation) user = pending->work->text();
    }
  }
  if (user.empty()) return;
  gpu_.fault(FaultKind::kFreed, "frees at " + site.text() + " what may still be in use by " + user +
                                    ": " + allocation.text());
}

bool Memory::is_gone(const std::byte* byte) const {
  auto found = gone_.upper_bound(byte);
  if (found == gone_.begin()) return false;
  --found;
  return byte < found->first + found->second;
}

void Memory::remove(Allocation& allocation, const CallSite& site) {
  auto& global = emulator::GlobalMemory::instance();
  if (!allocation.on_device()) {
    pinned_bytes_ -= allocation.bytes;
    global.remove(allocation.base);
    // Its addresses stay taken, and fault.
    if (allocation.kind == MemoryKind::kPinned) {
      mprotect(allocation.base, round_up(std::max<size_t>(allocation.bytes, 1), kPage), PROT_NONE);
      gone_[allocation.base] = allocation.bytes;
    }
    all_.erase(allocation.base);
    return;
  }
  if (!allocation.leaving) give_back(allocation);
  allocation.freed = true;
  allocation.freed_at = site;
  allocation.shadow = {};
  global.set_access(allocation.base, emulator::Access::kForbidden);
  global.set_name(allocation.base, "allocation " + std::to_string(allocation.number) + " (freed)");
  std::byte* bytes = allocation.base + allocation.alias;
  auto* first = reinterpret_cast<std::byte*>(round_up(reinterpret_cast<uintptr_t>(bytes), kPage));
  if (bytes + allocation.bytes > first + kPage) {
    madvise(first, static_cast<size_t>(bytes + allocation.bytes - first) / kPage * kPage,
            MADV_DONTNEED);
  }
}

bool Memory::valid(const char* call, const CallSite& site, const void* address, size_t bytes) {
  const Allocation* allocation = find(address);
  if (allocation == nullptr || bytes == 0) return true;  // ordinary memory
  const auto offset =
      static_cast<size_t>(static_cast<const std::byte*>(address) - allocation->base);
  if (!allocation->freed && offset + bytes <= allocation->bytes) return true;
  gpu_.fault(allocation->freed ? FaultKind::kFreed : FaultKind::kBounds,
             std::string(call) + " at " + site.text() + " of " +
                 bytes_text({offset, offset + bytes}) + " of " + allocation->text());
  return false;
}

void Memory::note(const Operation& operation, Allocation& allocation, emulator::Interval bytes,
                  bool write, const Clock& known) {
  const auto conflict = allocation.shadow.note(
      bytes, write, {operation.timeline, operation.time, operation.work}, known);
  if (!conflict) return;
  gpu_.fault(FaultKind::kRace, operation.work->text() + (write ? " writes, " : " reads, ") +
                                   conflict->other.work->text() +
                                   (conflict->other_wrote ? " writes" : " reads") +
                                   " and nothing orders them: " + bytes_text(conflict->bytes) +
                                   " of " + allocation.text());
}

std::byte* Memory::touch(const Operation& operation, const void* address, size_t bytes,
                         bool write) {
  auto* byte = static_cast<std::byte*>(const_cast<void*>(address));
  Allocation* allocation = find(address);
  if (allocation == nullptr && is_gone(byte)) {
    gpu_.fault(FaultKind::kFreed, operation.work->text() + ": pinned memory that was freed");
    return nullptr;
  }
  if (allocation == nullptr || bytes == 0) return byte;
  if (!valid(operation.work->name.c_str(), operation.work->site, address, bytes)) {
    gpu_.fail(operation.work->device, cudaErrorIllegalAddress);
    return nullptr;
  }
  const auto offset = static_cast<size_t>(byte - allocation->base);
  const emulator::Interval interval{offset, offset + bytes};
  note(operation, *allocation, interval, write, operation.known);
  if (allocation->watch) {
    if (const auto wrong = allocation->watch->check(interval)) {
      gpu_.fault(FaultKind::kPinnedMemory, *wrong + " while " + operation.work->text() +
                                               " was under way: " + allocation->text());
    }
  }
  return byte + allocation->alias;
}

void Memory::written(const void* address, size_t bytes) {
  Allocation* allocation = find(address);
  if (allocation == nullptr || !allocation->watch) return;
  const auto offset =
      static_cast<size_t>(static_cast<const std::byte*>(address) - allocation->base);
  allocation->watch->wrote({offset, offset + bytes});
}

void Memory::show_to(int device) {
  if (shown_to_ == device) return;
  shown_to_ = device;
  const std::set<int>& peers = gpu_.devices[static_cast<size_t>(device)].peers;
  auto& global = emulator::GlobalMemory::instance();
  for (const auto& [base, allocation] : all_) {
    if (allocation->freed) continue;
    const bool may = allocation->on_device()
                         ? allocation->device == device || peers.contains(allocation->device)
                         : allocation->mapped;
    global.set_access(base, may ? emulator::Access::kShared : emulator::Access::kForbidden);
    std::string name = "allocation " + std::to_string(allocation->number);
    if (!may) name += allocation->on_device() ? " (of a device that is no peer)" : " (not mapped)";
    global.set_name(base, std::move(name));
  }
}

void Memory::inspect(const Operation& operation) {
  for (const auto& [base, allocation] : all_) {
    if (allocation->log->empty()) continue;
    const emulator::AccessLog::Touched touched = allocation->log->take();
    for (const auto& i : touched.early_reads)
      note(operation, *allocation, i, false, operation.early);
    for (const auto& i : touched.early_writes)
      note(operation, *allocation, i, true, operation.early);
    for (const auto& i : touched.reads) note(operation, *allocation, i, false, operation.known);
    for (const auto& i : touched.writes) note(operation, *allocation, i, true, operation.known);
    if (!allocation->watch) continue;
    for (const auto& i : touched.writes) allocation->watch->wrote(i);
  }
}

std::string Memory::leaks() const {
  std::string all;
  for (const auto& [base, allocation] : all_) {
    // A stream of a device that is broken does not get to what was given back in its order.
    const bool goes = allocation->leaving && allocation->on_device() &&
                      gpu_.devices[static_cast<size_t>(allocation->device)].error != cudaSuccess;
    if (!allocation->freed && !goes) all += allocation->text() + "\n";
  }
  return all;
}

}  // namespace deltad::emulated_gpu
