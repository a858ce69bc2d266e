// What runs: decoded instructions, warps and blocks. Registers are arrays of 32 lanes; predicates
// are masks of lanes. One thread runs a grid.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "support/ptx/memory.h"
#include "support/ptx/parser.h"

namespace deltad::ptx {

struct Dim3 {
  uint32_t x = 1, y = 1, z = 1;
};

enum class Arrival { kLate, kEarly, kRandom };      // of asynchronous copies and products
enum class Order { kForward, kBackward, kRandom };  // of warps, blocks and copies in flight

struct Options {
  Order order = Order::kForward;
  Arrival arrival = Arrival::kLate;
  uint64_t seed = 1;
  uint32_t resident_blocks = 1;      // blocks that run interleaved
  int disabled = -1;                 // index of an instruction that is switched off
  uint64_t max_steps = 400'000'000;  // warp instructions; a kernel that needs more hangs
};

struct Warp;
struct Instr;
using Handler = void (*)(Warp&, const Instr&, uint32_t lanes);

enum class Flow : uint8_t {
  kPlain,  // each lane by itself
  kBranch,
  kExit,
  kConverge,  // all lanes that take part execute it together
  kBarrier,   // the warp, together, arrives at (and waits for) the block
};

// What a mutation test can take away.
enum class Switch : uint8_t { kNone, kBarrier, kWait, kGuard, kBranch };

struct Instr {
  static constexpr uint32_t kNoGuard = ~0U;
  Handler run = nullptr;
  const uint32_t* op = nullptr;  // places in the register file: destinations, then sources
  uint32_t guard = kNoGuard;
  bool guard_negated = false;
  Flow flow = Flow::kPlain;
  Switch kind = Switch::kNone;
  int target = -1;       // of a branch
  int mask_op = -1;      // kConverge: which operand holds the lanes that take part; -1: all
  int64_t imm = 0;       // an address's offset
  uint32_t n = 0;        // how many elements
  uint32_t aux[4] = {};  // what the handler's builder stores
};

struct Kernel {
  std::string name, target;
  const Function* text = nullptr;
  std::vector<Instr> code;
  std::vector<std::vector<uint32_t>> places;  // what Instr::op points into
  uint32_t file_words = 0;
  struct Constant {
    uint32_t place;
    bool wide;
    uint64_t value;
  };
  std::vector<Constant> constants;
  struct Special {
    uint32_t place;
    std::string name;
  };
  std::vector<Special> specials;
  uint32_t dynamic_shared = 0;  // where it begins
};

struct MBarrier {
  uint32_t expected = 0, pending = 0;
  int64_t bytes = 0;
  uint64_t phase = 0;
};

struct CopyIn {  // cp.async: at most 16 bytes, one lane's
  uint32_t to = 0, bytes = 0, filled = 0;
  uint64_t from = 0;
  const Instr* by = nullptr;
};

// Lands some time after it was issued: a bulk copy to shared memory, or cp.async's arrival on an
// mbarrier.
struct Pending {
  Warp* warp = nullptr;
  const Instr* by = nullptr;
  std::vector<CopyIn> copies;
  uint32_t mbarrier = 0;
  uint32_t bytes = 0;  // complete_tx
  uint32_t arrivals = 0;
};

struct BulkStore {
  uint64_t to = 0;
  uint32_t from = 0, bytes = 0;
  const Instr* by = nullptr;
};

struct Grid;

struct Block {
  struct Named {
    uint32_t arrived = 0;  // threads
    uint32_t needed = 0;   // 0: nobody yet
    std::vector<std::pair<Warp*, const Instr*>> waiters;
    uint32_t population = 0, threads = 0;  // of a reduction
  };
  Grid* grid = nullptr;
  Dim3 index;
  std::vector<uint8_t> shared;
  std::array<Named, 16> named;
  std::map<uint32_t, MBarrier> mbarriers;
  std::vector<Pending> pending;
  // Where generic stores to shared memory went, in 16 bytes: the time of the last one and its warp.
  std::vector<std::pair<uint64_t, Warp*>> generic_writes;
  std::vector<Warp> warps;

  void arrive(Warp& w, const Instr& i, uint32_t id, uint32_t count, bool wait);
  void release_if_full(uint32_t id);
  void warp_ended();
  void land(size_t which);
  void mbarrier_check(uint32_t address);
};

struct Warp {
  Block* block = nullptr;
  const Kernel* kernel = nullptr;
  uint32_t index = 0;
  std::vector<uint32_t> file;
  // The lanes that run now share `pc`; the others' places are in lane_pc, the nearest above is
  // other_pc.
  uint32_t live = 0, active = 0, waiting = 0;
  int pc = 0, other_pc = 0;
  std::array<int, 32> lane_pc{};
  int at_barrier = -1;
  bool yielded = false;                               // a wait that failed
  int avoid_pc = -1;                                  // where it failed: other lanes first
  std::array<std::vector<CopyIn>, 32> copies;         // cp.async in flight
  std::array<std::vector<uint32_t>, 32> copy_groups;  // ends of committed groups in copies
  std::array<std::vector<BulkStore>, 32> stores;
  std::array<std::vector<uint32_t>, 32> store_groups;
  uint64_t proxy_fence = 0;  // time of the last fence.proxy.async

  enum class Turn { kProgress, kStuck, kEnded };
  Turn run(uint32_t quantum);
  uint32_t* u32(uint32_t place) { return file.data() + place; }
  uint64_t* u64(uint32_t place) { return reinterpret_cast<uint64_t*>(file.data() + place); }
  uint32_t& predicate(uint32_t place) { return file[place]; }
  [[noreturn]] void fault(const Instr& i, const std::string& what, int lane = -1) const;

 private:
  bool pick();
  void leave(int pc_of_active);
};

struct Grid {
  const Kernel* kernel = nullptr;
  Dim3 blocks, threads;
  uint32_t dynamic_bytes = 0;
  std::vector<uint8_t> params;
  Memory* memory = nullptr;
  Options options;
  std::mt19937_64 random;
  uint64_t steps = 0, lane_steps = 0;
  uint64_t events = 0;             // what may let a waiting warp go on
  uint64_t clock = 0;              // counts writes and fences, for their order
  std::vector<uint64_t> executed;  // per instruction, by warps

  bool lands_early() {
    return options.arrival == Arrival::kEarly ||
           (options.arrival == Arrival::kRandom && random() % 2 == 0);
  }
};

// Generic addresses: shared memory and parameters have windows that no buffer can lie in.
constexpr uint64_t kSharedWindow = 0xffff'0000'0000'0000, kParamWindow = 0xfffe'0000'0000'0000;

// Checked access. `write` also notes that generic code wrote there.
uint8_t* shared_at(Warp& w, const Instr& i, uint64_t address, uint32_t bytes, int lane);
uint8_t* shared_for_write(Warp& w, const Instr& i, uint64_t address, uint32_t bytes, int lane);
const uint8_t* global_at(Warp& w, const Instr& i, uint64_t address, uint32_t bytes, int lane);
uint8_t* global_for_write(Warp& w, const Instr& i, uint64_t address, uint32_t bytes, int lane);

template <typename F>
inline void for_lanes(uint32_t lanes, F f) {
  if (lanes == ~0U) {
    for (int l = 0; l < 32; ++l) f(l);
  } else {
    for (uint32_t m = lanes; m; m &= m - 1) f(__builtin_ctz(m));
  }
}

}  // namespace deltad::ptx
