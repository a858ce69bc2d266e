// Call sites in kernels of what keeps them right: barriers, waits, bound checks, memory order. Each
// has a number by which a test can switch it off at run time (Options::off): a mutation test
// without a rebuild. The table lives as long as the process; launches run on one thread.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "tests/support/cuda_on_cpu/where.h"

namespace deltad::emulator {

enum class SiteKind : uint8_t {
  kBarrier,      // __syncthreads, named barriers, arrivals at an mbarrier; off: not there
  kWarpBarrier,  // __syncwarp; off: not there
  kWait,         // waits for asynchronous copies; off: not there
  kGuard,        // in_bounds(…); off: always true
  kRelease,      // what an atomic publishes; off: nothing
  kAcquire,      // what an atomic makes visible; off: nothing
  kProxyFence,   // stores that asynchronous copies and tensor cores must see; off: not there
};

using SiteId = int32_t;

struct Site {
  SiteKind kind;
  Where where;
  std::string text() const;  // "barrier at rms_norm.cu:41"
};

// "rms_norm.cu:41"
std::string text_of(Where where);

class SiteTable {
 public:
  static SiteTable& instance();
  SiteId id_of(SiteKind kind, Where where);
  const Site& at(SiteId id) const { return sites_[static_cast<size_t>(id)]; }
  size_t size() const { return sites_.size(); }

 private:
  std::vector<Site> sites_;
  // Keyed by the file's name as a pointer, which is one a call site, the line and the kind. Two
  // pointers to one name may make two sites of a header's line; each is switched by itself.
  std::unordered_map<uint64_t, SiteId> ids_;
};

}  // namespace deltad::emulator
