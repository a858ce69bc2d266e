// What streams carry: a piece of work, and one time that it is carried out. Under the runtime's
// lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/cuda_on_cpu/runtime/call_site.h"
#include "tests/support/cuda_on_cpu/runtime/clock.h"

namespace deltad::emulated_gpu {

class Gpu;
struct Operation;
struct Collective;

enum class WorkKind : uint8_t { kKernel, kCopy, kHostFunction, kCollective, kMarker };

// What a call asked for; a graph's node is carried out many times.
struct Work {
  WorkKind kind = WorkKind::kMarker;
  std::string name;    // the call's, or the kernel's
  std::string stream;  // in words
  CallSite site;
  int device = 0;
  bool hangs = false;                  // until emulated_gpu::let_go()
  bool overlaps = false;               // a kernel that may start before the one before it has ended
  std::vector<const void*> uses = {};  // addresses that the call itself names
  std::function<void(Gpu&, Operation&)> prepare = {};  // when the host hands it over
  std::function<void(Gpu&, Operation&)> run = {};
  std::function<void()> host = {};  // run instead, without the lock, on the driver's thread
  // A rank's part in a collective: finds the one that it is in, when the host hands it over.
  std::function<std::shared_ptr<Collective>(Gpu&, const std::shared_ptr<Operation>&)> join = {};

  std::string text() const;
};

struct Operation : std::enable_shared_from_this<Operation> {
  enum class State : uint8_t { kPending, kRunning, kDone };

  std::shared_ptr<const Work> work;
  uint64_t number = 0;  // in the order of the host's calls
  Timeline timeline = 0;
  uint32_t time = 0;                              // on its timeline, once it has run
  std::vector<std::shared_ptr<Operation>> after;  // that must have run; the stream's last one first
  std::shared_ptr<Collective> collective = nullptr;  // that it is a rank's part of
  State state = State::kPending;
  bool wanted = false;  // somebody waits for it
  Clock host;           // what the host knew when it handed it over
  Clock known, early;   // what has happened before it; and before the part that overlaps
  Clock clock;          // `known`, and itself
  std::vector<std::byte> staged = {};  // the source of a copy, as it was handed over

  bool done() const { return state == State::kDone; }
};

// Ranks' operations that run as one, when all have come.
struct Collective {
  size_t ranks = 0;
  std::vector<std::shared_ptr<Operation>> parts = {};  // that have come
  std::function<void(Gpu&)> run = {};
};

}  // namespace deltad::emulated_gpu
