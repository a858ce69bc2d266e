// Memory that the runtime gave out or knows of: on devices, and pinned on the host. Addresses of
// device memory fault when the host touches them; the bytes lie elsewhere (`alias`), for the
// emulator alone. Addresses are not given out twice. Under the runtime's lock.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/cuda_on_cpu/access_log.h"
#include "tests/support/cuda_on_cpu/runtime/call_site.h"
#include "tests/support/cuda_on_cpu/runtime/pinned.h"
#include "tests/support/cuda_on_cpu/runtime/shadow.h"

namespace deltad::emulated_gpu {

class Gpu;
struct Operation;

enum class MemoryKind : uint8_t { kDevice, kPinned, kRegistered };

struct Allocation {
  MemoryKind kind;
  int device;  // that was current, for the host's
  int number;
  std::byte* base;
  size_t bytes;
  ptrdiff_t alias = 0;   // from an address to where the bytes are
  CallSite site;         // that made it
  bool mapped = true;    // kernels may touch it
  bool pooled = false;   // out of the device's pool
  bool leaving = false;  // a stream frees it when it gets there; not counted any more
  Timeline left_on = 0;  // the stream, once it has been there
  uint32_t left_at = 0;
  bool freed = false;
  CallSite freed_at = {};
  std::unique_ptr<emulator::AccessLog> log = {};
  Shadow shadow = {};
  std::unique_ptr<PinnedWatch> watch = {};  // of the host's memory

  bool on_device() const { return kind == MemoryKind::kDevice; }
  std::string text() const;
};

class Memory {
 public:
  explicit Memory(Gpu& gpu);
  ~Memory();

  // Null where there is no room. pooled: in the order of a stream, out of the device's pool.
  std::byte* allocate(int device, size_t bytes, bool pooled, const CallSite& site);
  std::byte* allocate_pinned(int device, size_t bytes, bool mapped, const CallSite& site);
  void add_registered(int device, void* base, size_t bytes, bool mapped, const CallSite& site);
  // False if `base` is not the begin of such an allocation; a fault then says so. All work on it
  // must have been seen to end.
  bool free(void* base, MemoryKind kind, const CallSite& site);
  // A stream is going to free it: it counts no more. False as free().
  bool leave(void* base, const CallSite& site);
  // The stream is there.
  void left(void* base, const CallSite& site, const Operation& operation);
  // Whether any of the bytes lie in what is known already.
  bool overlaps(const void* address, size_t bytes) const;
  // The allocation that the address is in, freed ones on devices too; or null.
  Allocation* find(const void* address);
  // Where the bytes are for a copy or the like, which is a part of `operation`; ordinary host
  // memory is what it is. Null, and a fault, if the bytes are not all there to be touched.
  std::byte* touch(const Operation& operation, const void* address, size_t bytes, bool write);
  // touch() was for writing, and the bytes are written.
  void written(const void* address, size_t bytes);
  // Whether touch() could succeed, when the host hands the work over; a fault if not.
  bool valid(const char* call, const CallSite& site, const void* address, size_t bytes);

  // Before a launch on a device: what its kernels may touch. After it: looks at what they did.
  void show_to(int device);
  void peers_changed() { shown_to_ = -1; }
  void inspect(const Operation& operation);

  // Memory that has no address: of executable graphs. False if there is not so much left.
  bool charge(int device, size_t bytes);
  void discharge(int device, size_t bytes) { devices_[static_cast<size_t>(device)].bytes -= bytes; }

  size_t allocated(int device) const { return devices_[static_cast<size_t>(device)].bytes; }
  // The pool keeps what was freed, up to its threshold, and nothing else has use of it.
  struct Pool {
    size_t used = 0, reserved = 0;
    uint64_t threshold = 0;
    size_t idle() const { return reserved - used; }
    void trim(size_t keep) { reserved = std::max(used, std::min(reserved, keep)); }
  };
  Pool& pool(int device) { return devices_[static_cast<size_t>(device)].pool; }
  // As cudaMemPoolTrimTo: what the host has not seen to be free stays.
  void trim(int device, size_t keep);
  // That is neither allocated nor kept by the pool.
  size_t room(int device) const {
    const Arena& arena = devices_[static_cast<size_t>(device)];
    const size_t taken = arena.bytes + arena.pool.idle();
    return most_bytes() - std::min(most_bytes(), taken);
  }
  size_t peak(int device) const { return devices_[static_cast<size_t>(device)].peak; }
  size_t pinned() const { return pinned_bytes_; }
  std::string leaks() const;

 private:
  struct Arena {
    std::byte* base = nullptr;
    std::byte* alias = nullptr;
    size_t used = 0;  // addresses given out, gaps included
    size_t bytes = 0, peak = 0;
    Pool pool;
  };
  size_t most_bytes() const;
  void give_back(const Allocation& allocation);
  Allocation& add(Allocation allocation);
  Allocation* to_free(void* base, MemoryKind kind, const CallSite& site);
  void check_unused(const Allocation& allocation, const CallSite& site, const Clock& known);
  void remove(Allocation& allocation, const CallSite& site);
  bool is_gone(const std::byte* byte) const;
  void note(const Operation& operation, Allocation& allocation, emulator::Interval bytes,
            bool write, const Clock& known);

  Gpu& gpu_;
  std::vector<Arena> devices_;
  std::map<const std::byte*, std::unique_ptr<Allocation>> all_;  // by base
  std::map<const std::byte*, size_t>
      gone_;  // pinned memory that was freed, whose addresses stay taken
  std::vector<std::pair<std::byte*, size_t>> mapped_;  // to unmap at the end
  size_t pinned_bytes_ = 0;
  int next_number_ = 1;
  int shown_to_ = 0;
};

}  // namespace deltad::emulated_gpu
