// What a kernel did wrong: a record, never an abort. The launch ends with the first fault; a
// deadlock gives one for each place where threads wait.
#pragma once

#include <cstdint>
#include <string>

#include "tests/support/cuda_on_cpu/vector_types.h"
#include "tests/support/cuda_on_cpu/where.h"

namespace deltad::emulator {

enum class FaultKind : uint8_t {
  kDeadlock,       // every live thread waits
  kDivergence,     // threads of one barrier or lanes of one instruction are at different places
  kBadLane,        // a mask or a shuffle names a lane that cannot take part
  kSharedBounds,   // outside the block's dynamic shared memory
  kGlobalBounds,   // outside every buffer, or a write to a read-only one
  kMisaligned,     // not aligned to the access's size
  kUninitialised,  // reads shared memory that nobody wrote
  kInFlight,       // touches what an asynchronous copy has not delivered yet
  kRace,           // two accesses to shared memory that no barrier orders
  kStale,          // reads another block's store that was not acquired
  kRemote,         // another block's shared memory, when it cannot be there
  kOther,          // not of the emulator; `what` says it all
};

struct Fault {
  FaultKind kind;
  uint3 block;
  uint32_t thread;  // index in its block
  Where where;
  std::string what;

  std::string text() const;
};

}  // namespace deltad::emulator
