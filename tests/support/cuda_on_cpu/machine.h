// The machine that a kernel runs on: grid, blocks, warps, threads and who runs next. Made for one
// launch. Everything here is called from the fiber of the current thread, or by run().
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

#include "tests/support/cuda_on_cpu/fiber.h"
#include "tests/support/cuda_on_cpu/launch.h"
#include "tests/support/cuda_on_cpu/race_detector.h"
#include "tests/support/cuda_on_cpu/vector_types.h"

namespace deltad::emulator {

struct Block;
struct Cluster;
struct Warp;
class Machine;

// One thread's asynchronous copies: not delivered before the thread waits for them.
struct AsyncCopies {
  struct Copy {
    uint32_t offset;     // in shared memory
    const void* source;  // null: zeros
    uint32_t bytes;
  };
  std::vector<Copy> copies;    // in the order of issue
  std::vector<size_t> groups;  // how many copies were issued when each open group was committed
};

struct MBarrier;

struct Thread {
  Fiber fiber;
  Stack stack;
  Block* block = nullptr;
  Warp* warp = nullptr;
  uint32_t index = 0, lane = 0;
  uint32_t clock = 0;  // its number in the cluster: whose clock is whose
  uint3 id{};
  bool exited = false;
  bool previous_ended = false;  // it has waited for the kernel before
  // Phases of the cluster's barrier, from 1: the last that it arrived for and waited for, and whose
  // end it has seen.
  uint32_t arrived_phase = 0, waited_phase = 0, seen_phase = 0;
  // The barrier or warp instruction that it is in.
  const char* waits_in = "";
  Where waits_at;
  const MBarrier* waits_for = nullptr;
  void* arguments = nullptr;  // of the warp instruction, on the thread's stack
  AsyncCopies async;
};

// wgmma instructions of a warp: their results come when it waits for them.
struct WgmmaQueue {
  struct Operation {
    std::array<float*, 32> d;           // of each lane, in its registers
    std::array<const uint32_t*, 32> a;  // likewise
    uint64_t b;                         // descriptor
    int32_t n;
    Where where;
  };
  std::vector<Operation> operations;
  std::vector<size_t> groups;  // how many were issued when each open group was committed
  bool fenced = false;         // since the last wait
  // Accumulators on their way: what they will be. Their registers hold poison.
  std::map<float*, std::vector<std::array<float, 32>>> sums;  // by lane 0's d: [n / 2][lane]
};

struct Warp {
  // Lanes that have come to one warp instruction.
  struct Meeting {
    const char* instruction;
    Where where;
    uint32_t mask, arrived;
  };
  Thread* lanes[32] = {};
  uint32_t alive = 0;
  std::vector<Meeting> meetings;  // with disjoint masks
  AccessCounter accesses;
  WgmmaQueue wgmma;
};

struct Barrier {
  uint32_t arrived = 0;
  Where where;
  std::vector<Thread*> waiting;
  RaceDetector::Clock clock;
};

// An mbarrier: a phase ends when all arrivals and all bytes of its bulk copies have come.
struct MBarrier {
  uint32_t arrivals = 0, missing = 0;  // a phase's, and those not come
  int64_t missing_bytes = 0;
  uint32_t parity = 0;  // of the phase under way
  // Whether its init was shown to the copy engine; and in which phase of the cluster's barrier to
  // the cluster's threads, 0 in none.
  const Thread* maker = nullptr;
  bool fenced = false;
  uint32_t shown_phase = 0;
  std::vector<Thread*> waiting;
  RaceDetector::Clock clock, last_clock;  // of this phase, of the one before
};

struct BulkCopy {
  uint32_t offset;
  const void* source;
  uint32_t bytes;
  uint32_t barrier;     // its offset in shared memory
  bool remote = false;  // another block started it
  Where where = {};
};

// What another block did to a block's shared memory.
struct RemoteAct {
  uint32_t clock, time;  // whose, and when
  Where where;
};

struct Block {
  static constexpr int kBarriers = 16;
  Machine* machine = nullptr;
  uint3 index{};
  uint32_t number = 0;
  Cluster* cluster = nullptr;
  uint32_t rank = 0;  // in the cluster
  uint32_t alive = 0;
  std::vector<std::byte> shared;
  uint32_t shared_at = 0;  // where the cluster's race detector has it
  std::vector<Thread> threads;
  std::vector<Warp> warps;
  Barrier barriers[kBarriers];
  std::unordered_map<uint32_t, MBarrier> mbarriers;  // by offset in shared memory
  std::vector<BulkCopy> bulk_copies;                 // under way to it
  std::vector<RemoteAct> remote_acts;                // the last of each other thread and engine
  RaceDetector* races = nullptr;                     // the cluster's
  std::vector<const void*> unreleased;               // its words in message buffers
};

// Blocks that run at the same time and reach each other's shared memory; without them, one.
struct Cluster {
  std::vector<std::unique_ptr<Block>> blocks;  // by rank
  // Of all their threads, one block's after the other's, and of all their shared memory.
  std::unique_ptr<RaceDetector> races;
  uint32_t alive = 0;               // threads
  uint32_t phase = 1, missing = 0;  // the barrier's phase under way, and arrivals to come
  std::vector<Thread*> waiting = {};
};

extern constinit thread_local Thread* current;

class Machine {
 public:
  Machine(internal::Body body, const void* params, const cuda::Launch& launch,
          const Options& options);
  Report run();

  const cuda::Launch& shape() const { return launch_; }
  Counters& counters() { return report_.counters; }
  // The current thread's access, for the counters.
  void note(AccessKind kind, uint64_t address, size_t bytes, Where where);

  // Whether the site is switched on; takes note of it.
  bool on(SiteKind kind, Where where);
  bool weaker(SiteKind kind, Where where) const;
  // Ends the launch; all fibers are dropped as they stand, so the text is made by a function, which
  // leaves nothing on this one's stack that would have to be freed.
  template <class Text>
  [[noreturn]] void fail(FaultKind kind, const Thread& thread, Where where, const Text& text) {
    report_.faults.push_back({kind, thread.block->index, thread.index, where, text()});
    failed_ = true;
    leave(current->fiber);
  }

  // A fault, if what the race detector found is one.
  void check(const RaceDetector::Answer& answer, const Thread& thread, bool writes, Where where);

  // The current thread meets others at barrier `id` of its block. count 0: all live threads, from
  // one place.
  void barrier(uint32_t id, uint32_t count, Where where);
  // The current thread counts at the barrier, but does not wait.
  void barrier_arrive(uint32_t id, uint32_t count, Where where);

  // The cluster's barrier, for the current warp; see cluster.cc.
  void cluster_arrive(Where where);
  void cluster_wait(Where where);
  // The block of the current thread's cluster, which has not ended.
  Block& peer(uint32_t rank, Where where);
  // "thread 3", or "thread 3 of block (0, 1, 0)" if that is not the current one's.
  std::string name_of(uint32_t clock) const;

  // mbarriers of the current thread's block; see mbarrier.cc.
  void mbarrier_init(uint32_t offset, uint32_t arrivals, Where where);
  void mbarrier_arrive(uint32_t offset, uint32_t bytes, Where where);
  void mbarrier_arrive_at(uint32_t offset, uint32_t rank, Where where);
  void mbarrier_init_fence(Where where);
  void mbarrier_wait(uint32_t offset, uint32_t parity, Where where);
  void start_bulk_copy(const BulkCopy& copy, Where where);
  // To the blocks of the cluster whose bits are set.
  void start_bulk_copy(const BulkCopy& copy, uint32_t blocks, Where where);

  // The lanes of `mask` meet; the last one runs work(warp, mask) for all.
  template <class Work>
  void meet(const char* instruction, uint32_t mask, void* arguments, Where where, Work work) {
    if (!arrive(instruction, mask, arguments, where)) return;
    Thread* self = current;
    work(*self->warp, mask);
    release_lanes(*self->warp, mask & ~(1u << self->lane));
  }

  bool may_touch_step() const { return current->previous_ended || !options_.overlaps_previous; }

  // A word in a message buffer.
  void note_message_store(const void* word);
  void check_message_load(const void* word, Where where);
  void release_messages(const void* variable);
  void acquire_messages(const void* variable);

 private:
  struct Message {
    uint32_t block, thread, time;
    uint32_t stamp;  // of its release; 0: not released
  };

  static void thread_main(void* thread);
  uint32_t cluster_size() const;
  std::unique_ptr<Cluster> start_cluster(uint32_t number);
  std::unique_ptr<Block> make_block(Cluster& cluster, uint3 index, uint32_t rank);
  void start_threads(Block& block);
  void end_block(Block& block);
  void block_ends(Block& block);
  void end_cluster_phase_if_complete(Cluster& cluster);
  void thread_ends();
  [[noreturn]] void leave(Fiber& from);
  void wait_here();
  Thread* next();
  Thread* ready_thread();
  bool deliver_bulk_copy();
  MBarrier& mbarrier_at(Block& block, uint32_t offset, Where where);
  void arrive_at(Block& block, uint32_t offset, uint32_t bytes, Where where);
  void note_remote_act(Block& block, uint32_t clock, uint32_t time, Where where);
  void end_phase_if_complete(MBarrier& barrier);
  bool arrive(const char* instruction, uint32_t mask, void* arguments, Where where);
  void release_lanes(Warp& warp, uint32_t lanes);
  Barrier& barrier_of_block(uint32_t id);
  bool count_at_barrier(Barrier& barrier, uint32_t count, Where where);
  void open(Barrier& barrier);
  void note_deadlock();
  void note_waiting(const Block& block);

  const internal::Body body_;
  const void* const params_;
  const cuda::Launch launch_;
  const Options options_;
  Report report_;
  Fiber main_;
  bool failed_ = false;
  std::mt19937 random_;
  StackPool& stacks_;
  std::vector<std::unique_ptr<Cluster>> clusters_;  // that have begun and not ended
  std::vector<Thread*> ready_;                      // from head_ on
  size_t head_ = 0;
  std::vector<uint8_t> off_, weaker_, reached_;  // by site
  std::unordered_map<const void*, Message> messages_;
  std::unordered_map<const void*, uint32_t> variables_;  // stamp of the last release
  uint32_t releases_ = 0;
};

}  // namespace deltad::emulator
