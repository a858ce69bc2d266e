// What runs: decoded instructions, warps, blocks and the grid. Registers are arrays of 32 lanes;
// predicates are masks of lanes. One thread runs a grid (run.h).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/support/ptx/memory.h"
#include "tests/support/ptx/parser.h"
#include "tests/support/ptx/race_detector.h"
#include "tests/support/ptx/run.h"

namespace deltad::ptx {

struct Block;
struct Cluster;
struct Warp;
struct Instr;
using Handler = void (*)(Warp&, const Instr&, uint32_t lanes);
using SpecialRegister = uint32_t (*)(const Warp&, uint32_t lane);

enum class Flow : uint8_t {
  kPlain,  // each lane by itself
  kBranch,
  kExit,
  kConverge,  // all lanes that take part execute it together
  kBarrier,   // the warp, together, arrives at (and waits for) the block
};

struct Instr {
  static constexpr uint32_t kNoGuard = ~0U;
  Handler run = nullptr;
  const uint32_t* op = nullptr;  // places in the register file: destinations, then sources
  uint32_t guard = kNoGuard;
  bool guard_negated = false;
  Flow flow = Flow::kPlain;
  bool removable = false;  // a barrier, wait or fence: what Mutation::kSkip may take away
  bool weakens = false;    // orders blocks of a cluster: what Mutation::kWeaken may take away
  bool beyond = false;     // its shared addresses may lie in another block of the cluster
  bool compares = false;   // setp: op[0] is its answer, op[1] the opposite if aux[2]
  int done_op = -1;        // of a wait that is polled: which operand says that it is over
  int target = -1;         // of a branch
  int mask_op = -1;        // kConverge: which operand holds the lanes that take part
  bool whole_warp = true;  // kConverge without mask_op: all 32 lanes, not just those left
  struct Address {         // [register + offset]
    uint32_t place = 0;
    bool wide = false;
    int64_t offset = 0;
  };
  std::array<Address, 3> addresses;
  int64_t imm = 0;
  uint32_t n = 0;        // how many elements
  uint32_t aux[4] = {};  // what the handler's builder stores
};

struct Kernel {
  std::string name, target;
  const Function* text = nullptr;
  const ModuleText* module = nullptr;
  std::vector<Instr> code;
  std::vector<std::string> bounds;  // the source's line where an instruction is a bound check
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
    SpecialRegister value;
  };
  std::vector<Special> specials;
  uint32_t dynamic_shared = 0;  // where it begins
};

constexpr int64_t kMostBytes = 1 << 20;  // that an mbarrier counts, or owes
struct MBarrier {
  uint32_t expected = 0, pending = 0;
  int64_t bytes = 0;
  uint64_t phase = 0;
  // What arrivals make known: those of the block; those from beyond it to waits of the cluster's
  // scope; that those from beyond it happened. Of this phase, of those before.
  struct Known {
    Clock here, beyond, ends;
  };
  Known arriving = {}, completed = {};
  // By whom it was made: the warp's lane, and that warp's mbarriers with it; whether a
  // fence.mbarrier_init came after that.
  const Warp* maker = nullptr;
  int maker_lane = 0;
  uint32_t made = 0;
  bool fenced = false;
};

struct CopyIn {  // into shared memory: cp.async, one lane's; or a bulk copy
  Block* into = nullptr;
  uint32_t to = 0, bytes = 0, filled = 0;  // filled: read; the rest becomes zeros
  uint64_t from = 0;
  int lane = 0;
  const Instr* by = nullptr;
  bool bulk = false;  // by the asynchronous proxy
};

// Lands some time after it was issued: copies, then what they tell an mbarrier of the block that
// they go into.
struct Pending {
  Warp* warp = nullptr;
  std::vector<CopyIn> copies;
  uint32_t mbarrier = 0;
  uint32_t bytes = 0;  // complete_tx
  uint32_t arrivals = 0;
  const Instr* by = nullptr;
  Clock known = {};  // of a bulk copy: what its issue makes known
};

// wgmma in flight: one warp's rows. The sums lie here, not in the registers, until the wait; A is
// read then, too, wherever it is.
struct Product {
  using Rows = std::vector<std::array<uint32_t, 8>>;
  void (*multiply)(Product&, const Rows& a, const Rows& b) = nullptr;
  const Instr* by = nullptr;
  uint64_t a = 0, b = 0;                  // descriptors
  const uint32_t* a_registers = nullptr;  // their places, instead of a descriptor
  bool accumulates = true;
  std::vector<uint32_t> sums = {};  // [column][row]; empty: those of a product before
};

struct BulkStore {
  uint64_t to = 0;
  uint32_t from = 0, bytes = 0;
  int lane = 0;
  const Instr* by = nullptr;
};

enum Vote : uint32_t { kVotesCount = 1, kVotesAll, kVotesAny };  // of barrier.red

struct Block {
  struct Barrier {
    uint32_t arrived = 0;  // threads
    uint32_t needed = 0;   // 0: all threads of the block that are left
    std::vector<std::pair<Warp*, const Instr*>> waiters;
    uint32_t voters = 0, votes = 0;  // of a reduction
    Clock known;                     // what arrivals make known
  };
  Grid* grid = nullptr;
  Cluster* cluster = nullptr;
  uint32_t rank = 0;  // in the cluster
  Dim3 index;
  bool ended = false;
  std::vector<uint8_t> shared;
  std::array<Barrier, 16> barriers;
  std::map<uint32_t, MBarrier> mbarriers;
  std::vector<Pending> pending;
  // The last generic store to each 16 bytes of shared memory: when, and by which warp.
  std::vector<std::pair<uint64_t, Warp*>> generic_writes;
  std::vector<Warp> warps;
  RaceDetector races;
  // By each warp of the cluster: its last access to this block's shared memory from another block.
  struct Visit {
    const Instr* by = nullptr;
    uint32_t interval = 0;
    int lane = 0;
  };
  std::vector<Visit> visits;

  void arrive(Warp& w, const Instr& i, uint32_t id, uint32_t count, bool wait);
  void release_if_full(uint32_t id);
  void warp_ended();
  void land(size_t which);  // of `pending`
  // For an access of this block's mbarrier by a warp of the cluster.
  MBarrier& mbarrier_at(Warp& w, const Instr& i, uint64_t address, int lane);
  void advance_if_complete(MBarrier& m);
  // The asynchronous proxy reads or overwrites these bytes: generic stores to them need a fence.
  void require_proxy_fence(Warp& w, const Instr& i, uint64_t address, uint32_t bytes, int lane);
  void forget_generic_writes(uint64_t address, uint32_t bytes);
  uint32_t live_warps() const;

 private:
  void check_end();
};

// Blocks that run at the same time and reach each other's shared memory. A launch without clusters
// has clusters of one.
struct Cluster {
  Grid* grid = nullptr;
  Dim3 index;
  Clocks clocks;
  std::vector<std::unique_ptr<Block>> blocks;  // by rank
  // barrier.cluster: phases that are over; what arrivals make known, of this phase and the last.
  uint64_t phase = 0;
  Clock arriving = {}, completed = {};

  bool ended() const;
  // Of all of a warp's lanes, with .aligned or without.
  void arrive(Warp& w, const Instr& i, bool releases);
  void wait(Warp& w, const Instr& i);
  void advance_if_complete();
};

struct Warp {
  Block* block = nullptr;
  const Kernel* kernel = nullptr;
  uint32_t index = 0;   // in the block
  uint32_t number = 0;  // in the cluster
  std::vector<std::byte> file;
  std::vector<uint8_t> local;  // 32 lanes' local memory, one after the other
  // Lanes: `live` have not ended; `active` are at `pc` and run now; `waiting` are at an instruction
  // that needs others; `deferred` had their turn or wait in vain, others go first. lane_pc is of
  // those not active; other_pc is the least of those that could run.
  uint32_t live = 0, active = 0, waiting = 0, deferred = 0;
  int pc = 0, other_pc = 0;
  std::array<int, 32> lane_pc{};
  int at_barrier = -1;  // its number, or kClusterBarrier
  static constexpr int kClusterBarrier = 16;
  uint64_t cluster_arrival = 0;   // barrier.cluster's phase, from 1, not waited for yet; 0: none
  Clock fenced = {};              // what a relaxed arrival makes known
  uint32_t saw_previous_end = 0;  // lanes that executed griddepcontrol.wait
  bool yielded = false;           // set by a wait that was polled in vain
  std::array<std::vector<CopyIn>, 32> copies;         // cp.async in flight
  std::array<std::vector<uint32_t>, 32> copy_groups;  // ends of committed groups in copies
  std::array<std::vector<BulkStore>, 32> stores;
  std::array<std::vector<uint32_t>, 32> store_groups;
  uint64_t proxy_fence = 0;  // time of the last fence.proxy.async
  std::vector<Product> products;
  std::vector<uint32_t> product_groups;  // ends of committed groups in products
  bool products_fenced = false;          // wgmma.fence since the registers were last in our hands

  enum class Turn { kProgress, kStuck, kEnded };
  Turn run(uint32_t quantum);
  uint32_t* u32(uint32_t place) { return reinterpret_cast<uint32_t*>(file.data() + 4ULL * place); }
  uint64_t* u64(uint32_t place) { return reinterpret_cast<uint64_t*>(file.data() + 4ULL * place); }
  uint32_t& predicate(uint32_t place) { return *u32(place); }
  void set_predicate(uint32_t place, uint32_t lanes, uint32_t value) {
    uint32_t& p = predicate(place);
    p = (p & ~lanes) | (value & lanes);
  }
  [[noreturn]] void fault(const Instr& i, const std::string& what, int lane = -1) const;
  Clocks& clocks() const { return block->cluster->clocks; }
  const Statement& statement(const Instr& i) const {
    return kernel->text->code[static_cast<size_t>(&i - kernel->code.data())];
  }
  bool weakened(const Instr& i) const;

 private:
  bool pick();
  void park();                                  // the active lanes' place into lane_pc
  void answer(const Instr& i, uint32_t lanes);  // of a bound check
  void branch(const Instr& i, uint32_t lanes);
  void exit(uint32_t lanes);
  void converge(const Instr& i, uint32_t lanes);
  uint32_t participants(const Instr& i, uint32_t arrived);
  uint32_t mask_of(const Instr& i, int lane);
};

struct Grid {
  const Kernel* kernel = nullptr;
  Dim3 blocks, threads, cluster;
  uint32_t dynamic_bytes = 0;
  std::vector<uint8_t> params;
  Memory* memory = nullptr;
  Options options;
  std::mt19937_64 random;
  uint64_t steps = 0;
  uint64_t events = 0;                               // what may let a waiting warp go on
  uint64_t clock = 0;                                // counts writes and fences, for their order
  std::vector<uint64_t> executed, refused, granted;  // as in Outcome

  uint32_t warps() const { return static_cast<uint32_t>((threads.count() + 31) / 32); }  // a block
  Dim3 clusters() const {
    return {blocks.x / cluster.x, blocks.y / cluster.y, blocks.z / cluster.z};
  }
  bool mutated(Mutation::Kind kind, int pc) const {
    if (!options.mutation || options.mutation->kind != kind) return false;
    const std::vector<int>& also = options.mutation->also;
    return options.mutation->instruction == pc ||
           std::find(also.begin(), also.end(), pc) != also.end();
  }
  bool lands_early() {
    return options.arrival == Arrival::kEarly ||
           (options.arrival == Arrival::kRandom && random() % 2 == 0);
  }
};

// Generic addresses: these spaces have windows that no buffer can lie in.
constexpr uint64_t kSharedWindow = 0xffff'0000'0000'0000, kParamWindow = 0xfffe'0000'0000'0000,
                   kLocalWindow = 0xfffd'0000'0000'0000;

// Shared addresses of the cluster: mapa's lie in a window each block; lower ones in the own block.
constexpr uint64_t kBlockWindow = 1 << 24;
constexpr uint64_t cluster_address(uint32_t rank, uint64_t offset) {
  return kBlockWindow * (rank + 1) + offset;
}
struct SharedPlace {
  Block* block;
  uint64_t offset;
};
// Of an instruction that takes other blocks' addresses or not (Instr::beyond).
SharedPlace window_place(Warp& w, const Instr& i, uint64_t address, int lane);
inline SharedPlace shared_place(Warp& w, const Instr& i, uint64_t address, int lane) {
  return address < kBlockWindow ? SharedPlace{w.block, address} : window_place(w, i, address, lane);
}
// Before any access of another block's memory: it has started and not ended.
void visit(Warp& w, const Instr& i, Block& to, int lane);

// Checked access: within bounds …
uint8_t* shared_at(Warp& w, const Instr& i, uint64_t address, uint32_t bytes, int lane);
uint8_t* shared_at(Warp& w, const Instr& i, const SharedPlace& p, uint32_t bytes, int lane);
// … and ordered with other accesses …
const uint8_t* shared_read(Warp& w, const Instr& i, uint64_t address, uint32_t bytes, int lane);
uint8_t* shared_write(Warp& w, const Instr& i, const SharedPlace& p, uint32_t bytes, int lane);
// … and noted as generic code's.
uint8_t* shared_for_write(Warp& w, const Instr& i, uint64_t address, uint32_t bytes, int lane);
const uint8_t* global_at(Warp& w, const Instr& i, uint64_t address, uint32_t bytes, int lane);
uint8_t* global_for_write(Warp& w, const Instr& i, uint64_t address, uint32_t bytes, int lane);
// A shared address that may have been written as a generic one.
inline uint64_t to_shared(uint64_t a) { return a >= kSharedWindow ? a - kSharedWindow : a; }

// A sum with a register of 32 bits stays in them: nvcc puts a negative part into the register.
inline uint64_t address_of(Warp& w, const Instr& i, size_t which, int lane) {
  const Instr::Address& a = i.addresses[which];
  const auto offset = static_cast<uint64_t>(a.offset);
  if (a.wide) return w.u64(a.place)[lane] + offset;
  return static_cast<uint32_t>(w.u32(a.place)[lane] + offset);
}

void land(Warp& w, const CopyIn& c);

// "block (0,0,0)"
std::string name_of(const char* what, Dim3 index);

// "%tid.x" → how to compute it; null: not known. (special.cc)
SpecialRegister special_register(const std::string& name);

template <typename F>
inline void for_lanes(uint32_t lanes, F f) {
  if (lanes == ~0U) {
    for (int l = 0; l < 32; ++l) f(l);
  } else {
    for (uint32_t m = lanes; m; m &= m - 1) f(__builtin_ctz(m));
  }
}

}  // namespace deltad::ptx
