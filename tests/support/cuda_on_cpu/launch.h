// Runs a kernel of kernels/cuda on the CPU, one fiber a CUDA thread, and says what it did wrong.
// The .cu file is compiled as C++ with the definitions of device.h in this folder. One launch at a
// time, on the calling thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cuda/launch.h"
#include "tests/support/cuda_on_cpu/access_counter.h"
#include "tests/support/cuda_on_cpu/fault.h"
#include "tests/support/cuda_on_cpu/site.h"

namespace deltad::emulator {

// Which of the threads that can run does: a missing barrier shows in one order or another.
enum class Order : uint8_t { kFifo, kLifo, kRandom };

struct Options {
  Order order = Order::kFifo;
  uint32_t seed = 1;                // of kRandom
  uint32_t resident_blocks = 1;     // that run at the same time
  std::vector<SiteId> off = {};     // switched off in this launch
  std::vector<SiteId> weaker = {};  // waits for a group of copies, or a phase, less
  // The kernel may start before the one before it has ended, and must wait before it touches any
  // buffer but inputs that never change in a step.
  bool overlaps_previous = false;
  bool count_accesses = false;
  bool races = true;  // look for accesses to shared memory that nothing orders
};

struct Counters {
  uint64_t mma = 0;
  uint64_t barriers = 0;  // arrivals
};

struct Report {
  std::vector<Fault> faults;
  std::vector<AccessCount> accesses;  // one a line of source, if counted
  std::vector<SiteId> sites;          // that were reached, whether on or off
  Counters counters;

  bool ok() const { return faults.empty(); }
  std::string text() const;  // the faults, one a line
};

namespace internal {
using Body = void (*)(const void* params);
Report run(Body body, const void* params, const cuda::Launch& launch, const Options& options);
}  // namespace internal

// Params is the kernel's only parameter, a struct by value.
template <class Params>
Report launch(void (*kernel)(Params), const cuda::Launch& shape, const Params& params,
              const Options& options = {}) {
  struct Call {
    void (*kernel)(Params);
    const Params* params;
  } call{kernel, &params};
  return internal::run(
      [](const void* c) {
        const Call& made = *static_cast<const Call*>(c);
        made.kernel(*made.params);
      },
      &call, shape, options);
}

}  // namespace deltad::emulator
