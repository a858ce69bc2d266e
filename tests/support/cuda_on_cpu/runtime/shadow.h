// Who last touched which bytes of an allocation, to find accesses that nothing orders. Owned by the
// allocation; under the runtime's lock.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "tests/support/cuda_on_cpu/access_log.h"
#include "tests/support/cuda_on_cpu/runtime/clock.h"

namespace deltad::emulated_gpu {

struct Work;

// An operation's moment on its timeline.
struct Moment {
  Timeline timeline = 0;
  uint32_t time = 0;
  std::shared_ptr<const Work> work;
};

class Shadow {
 public:
  // Another access that is not ordered with the one at hand.
  struct Conflict {
    Moment other;
    bool other_wrote;
    emulator::Interval bytes;
  };

  // Takes note of an access at `moment`, which comes after all that `known` knows; the first
  // conflict, if there is one.
  std::optional<Conflict> note(emulator::Interval bytes, bool write, const Moment& moment,
                               const Clock& known);
  // The first access in the whole allocation that `known` does not know.
  std::optional<Conflict> unknown(const Clock& known) const;

 private:
  struct Cell {
    size_t end;
    Moment writer;  // no work: nobody
    std::vector<Moment> readers;
  };
  // Makes a cell's border at `offset`.
  void split(size_t offset);

  std::map<size_t, Cell> cells_;  // by begin; what no cell covers nobody touched
};

}  // namespace deltad::emulated_gpu
