// The interpreter's interface: load a module's PTX, run a kernel's grid on registered memory. What
// goes wrong comes back as a Fault that names the instruction, its line and the thread. One thread
// at a time.
//
// Threads of a block are scheduled in an order of choice. A warp's lanes diverge and meet again;
// instructions of the whole warp run when the lanes that take part have arrived. Asynchronous
// copies and products land as late as the program allows (or early, or by chance); until then their
// destination is poisoned, as shared memory is at the start. The blocks of a cluster run
// interleaved and reach each other's shared memory; what a block does to another's must be ordered
// after that one's start and before its end.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "tests/support/ptx/memory.h"

namespace deltad::ptx {

struct Grid;
struct Kernel;
struct ModuleText;

struct Dim3 {
  uint32_t x = 1, y = 1, z = 1;
  uint64_t count() const { return uint64_t{x} * y * z; }
};

// What stops a kernel: bad PTX, an unknown instruction, a forbidden access, a deadlock.
struct Fault {
  std::string what = {};
  std::string instruction = {};  // as written; empty: not about one
  int line = 0;                  // of the PTX text
  std::string source = {};       // "rms_norm.cu:20", if known
  std::string kernel = {};
  std::string thread = {};  // "block (0,0,0) thread (5,0,0)"; empty: before any ran
  std::string text() const;
};

enum class Arrival { kLate, kEarly, kRandom };  // of asynchronous copies and products
enum class Order { kFifo, kLifo, kRandom };     // of warps, blocks and copies in flight

// One instruction made weaker, to see whether a test notices.
struct Mutation {
  enum class Kind {
    kSkip,    // a barrier, wait or fence does nothing
    kWeaken,  // an arrival or a wait orders nothing beyond its block
    kAlways,  // a guarded instruction runs whatever its guard says
    kTrue,
    kFalse,  // a bound check (a setp of a line with in_bounds(…)) has one answer
  };
  Kind kind = Kind::kSkip;
  int instruction = -1;        // index in the kernel
  std::vector<int> also = {};  // those that are weakened with it
  std::string text = {};       // "rms_norm.cu:20, PTX line 12: bar.sync 0 (skipped)"
};

struct Options {
  Order order = Order::kFifo;
  Arrival arrival = Arrival::kLate;
  uint64_t seed = 1;
  uint32_t resident_blocks = 1;  // blocks that run interleaved; a cluster's always do
  Dim3 cluster = {};             // blocks of a cluster; of the launch, like the next
  // The kernel before may not have ended until griddepcontrol.wait: what is fresh must not be read,
  // and nothing written.
  bool overlaps_previous = false;
  std::optional<Mutation> mutation = {};
  uint64_t max_steps = 400'000'000;  // warp instructions; a kernel that needs more hangs
};

// What one run did.
struct Outcome {
  std::optional<Fault> fault;
  uint64_t steps = 0;              // warp instructions
  std::vector<uint64_t> executed;  // the same for each instruction, where a lane's guard let it run
  std::vector<uint64_t> refused;   // where the guard of a lane did not, or a bound check said no
  std::vector<uint64_t> granted;   // where a bound check said yes
  // Another launch of the same kernel: the first fault and all counts.
  void add(Outcome other);
  // Whether the mutation would have changed anything in this run.
  bool exercises(const Mutation& m) const {
    const auto i = static_cast<size_t>(m.instruction);
    switch (m.kind) {
      case Mutation::Kind::kSkip:
      case Mutation::Kind::kWeaken:
        return executed.at(i) > 0;
      case Mutation::Kind::kFalse:
        return granted.at(i) > 0;
      default:
        return refused.at(i) > 0;
    }
  }
};

class Module {
 public:
  static Result<std::unique_ptr<Module>> load(const std::string& text);
  ~Module();

  const std::string& target() const;  // "sm_90a"
  std::vector<std::string> kernels() const;
  // `params`: the bytes of the kernel's parameters, laid out as in C. A kernel with an instruction
  // that the interpreter does not know does not start.
  Outcome run(const std::string& kernel, Dim3 grid, Dim3 block, uint32_t dynamic_shared,
              std::span<const std::byte> params, Memory& memory, const Options& options = {});
  // Everything that can be weakened in a kernel.
  Result<std::vector<Mutation>> mutations(const std::string& kernel);

 private:
  Module();
  const Kernel& decoded(const std::string& kernel);  // throws Fault
  std::unique_ptr<ModuleText> text_;
  std::vector<std::unique_ptr<Kernel>> decoded_;
};

}  // namespace deltad::ptx
