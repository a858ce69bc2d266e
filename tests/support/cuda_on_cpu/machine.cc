#include "tests/support/cuda_on_cpu/machine.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <utility>

#include "base/check.h"

namespace deltad::emulator {

constinit thread_local Thread* current = nullptr;

namespace {

StackPool& stack_pool() {
  static thread_local StackPool pool;
  return pool;
}

}  // namespace

std::string Report::text() const {
  std::string all;
  for (const Fault& fault : faults) all += fault.text() + "\n";
  return all;
}

Report internal::run(Body body, const void* params, const cuda::Launch& launch,
                     const Options& options) {
  return Machine(body, params, launch, options).run();
}

Machine::Machine(internal::Body body, const void* params, const cuda::Launch& launch,
                 const Options& options)
    : body_(body),
      params_(params),
      launch_(launch),
      options_(options),
      random_(options.seed),
      stacks_(stack_pool()) {
  const SiteTable& table = SiteTable::instance();
  off_.resize(table.size(), 0);
  weaker_ = off_;
  for (SiteId id : options.off) off_[static_cast<size_t>(id)] = 1;
  for (SiteId id : options.weaker) weaker_[static_cast<size_t>(id)] = 1;
}

bool Machine::on(SiteKind kind, Where where) {
  const auto id = static_cast<size_t>(SiteTable::instance().id_of(kind, where));
  if (id >= reached_.size()) reached_.resize(id + 1, 0);
  if (reached_[id] == 0) {
    reached_[id] = 1;
    report_.sites.push_back(static_cast<SiteId>(id));
  }
  return id >= off_.size() || off_[id] == 0;
}

bool Machine::weaker(SiteKind kind, Where where) const {
  const auto id = static_cast<size_t>(SiteTable::instance().id_of(kind, where));
  return id < weaker_.size() && weaker_[id] != 0;
}

void Machine::note(AccessKind kind, uint64_t address, size_t bytes, Where where) {
  if (!options_.count_accesses) return;
  current->warp->accesses.note(kind, current->lane, address, bytes, where);
}

Report Machine::run() {
  CHECK(options_.resident_blocks > 0, "no block may run");
  const cuda::Extent grid = launch_.grid, of = launch_.cluster;
  CHECK(cluster_size() > 0 && grid.x % of.x == 0 && grid.y % of.y == 0 && grid.z % of.z == 0,
        "the grid is no multiple of the cluster");
  CHECK(cluster_size() <= cuda::kMostClusterBlocks, "more blocks than a cluster may have");
  const uint64_t total = uint64_t{grid.x} * grid.y * grid.z / cluster_size();
  const uint64_t resident = std::max(1u, options_.resident_blocks / cluster_size());
  uint64_t started = 0;
  while (!failed_ && (started < total || !clusters_.empty())) {
    while (started < total && clusters_.size() < resident) {
      clusters_.push_back(start_cluster(static_cast<uint32_t>(started++)));
    }
    // Comes back when a block has ended, or at a fault.
    current = next();
    if (current == nullptr) {
      note_deadlock();
      break;
    }
    Fiber::switch_between(main_, current->fiber);
    std::erase_if(clusters_, [&](const std::unique_ptr<Cluster>& cluster) {
      if (cluster->alive > 0) return false;
      for (const auto& block : cluster->blocks) end_block(*block);
      return true;
    });
  }
  for (const auto& cluster : clusters_) {
    for (const auto& block : cluster->blocks) end_block(*block);
  }
  clusters_.clear();
  current = nullptr;
  return std::move(report_);
}

std::unique_ptr<Block> Machine::make_block(Cluster& cluster, uint3 index, uint32_t rank) {
  const cuda::Extent grid = launch_.grid, shape = launch_.block;
  auto block = std::make_unique<Block>();
  block->machine = this;
  block->index = index;
  block->number = index.x + (index.y + index.z * grid.y) * grid.x;
  block->cluster = &cluster;
  block->rank = rank;
  block->alive = shape.x * shape.y * shape.z;
  block->shared.assign(launch_.shared_bytes, std::byte{0xff});
  block->shared_at = rank * ((launch_.shared_bytes + 15) / 16 * 16);
  block->races = cluster.races.get();
  return block;
}

void Machine::start_threads(Block& block) {
  const cuda::Extent shape = launch_.block;
  const uint32_t count = block.alive;
  block.threads = std::vector<Thread>(count);
  block.warps.resize((count + 31) / 32);
  for (uint32_t i = 0; i < count; ++i) {
    Thread& thread = block.threads[i];
    thread.block = &block;
    thread.warp = &block.warps[i / 32];
    thread.index = i;
    thread.clock = block.rank * count + i;
    thread.lane = i % 32;
    thread.id = {i % shape.x, i / shape.x % shape.y, i / shape.x / shape.y};
    thread.warp->lanes[thread.lane] = &thread;
    thread.warp->alive |= 1u << thread.lane;
    thread.stack = stacks_.take();
    thread.fiber.prepare(thread.stack, &Machine::thread_main, &thread);
    ready_.push_back(&thread);
  }
}

void Machine::end_block(Block& block) {
  for (Warp& warp : block.warps) warp.accesses.add_to(report_.accesses);
  for (const Thread& thread : block.threads) stacks_.give(thread.stack);
}

void Machine::thread_main(void* argument) {
  auto* thread = static_cast<Thread*>(argument);
  Machine& machine = *thread->block->machine;
  machine.body_(machine.params_);
  machine.thread_ends();
  std::abort();  // nobody resumes an ended fiber
}

void Machine::thread_ends() {
  Thread* self = current;
  Block& block = *self->block;
  self->exited = true;
  --block.alive;
  Cluster& cluster = *block.cluster;
  --cluster.alive;
  if (self->arrived_phase < cluster.phase) --cluster.missing;
  end_cluster_phase_if_complete(cluster);
  self->warp->alive &= ~(1u << self->lane);
  // __syncthreads waits for the live threads only.
  Barrier& all = block.barriers[0];
  if (all.arrived > 0 && all.arrived == block.alive) open(all);
  if (block.alive == 0) {
    block_ends(block);
    leave(self->fiber);
  }
  Thread* chosen = next();
  if (chosen == nullptr) {
    note_deadlock();
    leave(self->fiber);
  }
  current = chosen;
  Fiber::switch_between(self->fiber, chosen->fiber, true);
}

void Machine::leave(Fiber& from) {
  Fiber::switch_between(from, main_, true);
  std::abort();  // nobody comes back
}

void Machine::check(const RaceDetector::Answer& answer, const Thread& thread, bool writes,
                    Where where) {
  using Verdict = RaceDetector::Verdict;
  if (answer.verdict == Verdict::kFine) return;
  const uint32_t of_block = (launch_.shared_bytes + 15) / 16 * 16;
  const auto of_other = [&] {
    const auto rank = static_cast<uint32_t>(answer.offset / std::max(of_block, 1u));
    return rank == thread.block->rank ? ""
                                      : " of block " + std::to_string(rank) + " of the cluster";
  };
  const auto act = [&] {
    return std::string(writes ? "writes" : "reads") + " shared memory at byte " +
           std::to_string(launch_.shared_bytes == 0 ? 0 : answer.offset % of_block) + of_other();
  };
  const auto other = [&] { return name_of(answer.other); };
  if (answer.verdict == Verdict::kUninitialised) {
    fail(FaultKind::kUninitialised, thread, where, [&] { return act() + ", which nobody wrote"; });
  }
  if (answer.verdict == Verdict::kInFlight) {
    fail(FaultKind::kInFlight, thread, where,
         [&] { return act() + ", where a copy of " + other() + " is under way"; });
  }
  fail(FaultKind::kRace, thread, where, [&] {
    return act() + ", unordered with a " + (answer.other_wrote ? "write" : "read") + " of " +
           other();
  });
}

// One record for each place where threads wait, with how many do.
void Machine::note_deadlock() {
  failed_ = true;
  for (const auto& cluster : clusters_) {
    for (const auto& block : cluster->blocks) note_waiting(*block);
  }
}

void Machine::note_waiting(const Block& block) {
  std::vector<std::pair<const Thread*, uint32_t>> places;
  for (const Thread& thread : block.threads) {
    if (thread.exited) continue;
    const auto same = std::find_if(places.begin(), places.end(), [&](const auto& place) {
      return place.first->waits_at.file == thread.waits_at.file &&
             place.first->waits_at.line == thread.waits_at.line &&
             place.first->waits_for == thread.waits_for;
    });
    if (same != places.end()) {
      ++same->second;
    } else {
      places.emplace_back(&thread, 1);
    }
  }
  for (const auto& [thread, count] : places) {
    std::string what = std::to_string(count) + " threads wait in " + thread->waits_in;
    if (const MBarrier* barrier = thread->waits_for) {
      what += ", for " + std::to_string(barrier->missing) + " arrivals and " +
              std::to_string(barrier->missing_bytes) + " bytes";
    } else if (thread->seen_phase < thread->waited_phase) {
      what += ", for " + std::to_string(block.cluster->missing) + " threads of the cluster";
    }
    report_.faults.push_back(
        {FaultKind::kDeadlock, block.index, thread->index, thread->waits_at, what});
  }
}

// Bulk copies arrive only when nothing else can go on: as late as they may.
Thread* Machine::next() {
  for (;;) {
    if (Thread* thread = ready_thread()) return thread;
    if (!deliver_bulk_copy()) return nullptr;
  }
}

Thread* Machine::ready_thread() {
  const size_t count = ready_.size() - head_;
  if (count == 0) return nullptr;
  if (options_.order == Order::kLifo) {
    Thread* last = ready_.back();
    ready_.pop_back();
    return last;
  }
  if (options_.order == Order::kRandom) {
    std::swap(ready_[head_], ready_[head_ + random_() % count]);
  }
  Thread* first = ready_[head_++];
  if (head_ == ready_.size()) {
    ready_.clear();
    head_ = 0;
  }
  return first;
}

void Machine::wait_here() {
  Thread* self = current;
  Thread* chosen = next();
  if (chosen == nullptr) {
    note_deadlock();
    leave(self->fiber);
  }
  if (chosen == self) return;
  current = chosen;
  Fiber::switch_between(self->fiber, chosen->fiber);
}

Barrier& Machine::barrier_of_block(uint32_t id) {
  CHECK(id < Block::kBarriers, "a block has 16 barriers");
  return current->block->barriers[id];
}

bool Machine::count_at_barrier(Barrier& barrier, uint32_t count, Where where) {
  Thread* self = current;
  self->waits_in = "a barrier";
  self->waits_at = where;
  ++report_.counters.barriers;
  if (count == 0 && barrier.arrived > 0 &&
      (barrier.where.file != where.file || barrier.where.line != where.line)) {
    fail(FaultKind::kDivergence, *self, where,
         [&] { return "others of the block are at the barrier of " + text_of(barrier.where); });
  }
  barrier.where = where;
  ++barrier.arrived;
  self->block->races->give(self->clock, barrier.clock);
  return barrier.arrived == (count == 0 ? self->block->alive : count);
}

void Machine::open(Barrier& barrier) {
  for (Thread* thread : barrier.waiting) {
    thread->block->races->take(thread->clock, barrier.clock);
    ready_.push_back(thread);
  }
  barrier.waiting.clear();
  barrier.arrived = 0;
  barrier.clock.clear();
}

void Machine::barrier(uint32_t id, uint32_t count, Where where) {
  if (!on(SiteKind::kBarrier, where)) return;
  Thread* self = current;
  Barrier& barrier = barrier_of_block(id);
  const bool last = count_at_barrier(barrier, count, where);
  barrier.waiting.push_back(self);
  if (last) open(barrier);
  wait_here();
}

void Machine::barrier_arrive(uint32_t id, uint32_t count, Where where) {
  if (!on(SiteKind::kBarrier, where)) return;
  Barrier& barrier = barrier_of_block(id);
  if (count_at_barrier(barrier, count, where)) open(barrier);
}

bool Machine::arrive(const char* instruction, uint32_t mask, void* arguments, Where where) {
  Thread* self = current;
  Warp& warp = *self->warp;
  const uint32_t bit = 1u << self->lane;
  self->waits_in = instruction;
  self->waits_at = where;
  self->arguments = arguments;
  if ((mask & bit) == 0) {
    fail(FaultKind::kBadLane, *self, where,
         [] { return std::string("a lane that is not in its own mask"); });
  }
  if ((mask & ~warp.alive) != 0) {
    fail(FaultKind::kBadLane, *self, where,
         [] { return std::string("the mask names lanes that have exited"); });
  }
  for (size_t i = 0; i < warp.meetings.size(); ++i) {
    Warp::Meeting& meeting = warp.meetings[i];
    if ((meeting.mask & mask) == 0) continue;
    if (meeting.instruction != instruction || meeting.mask != mask ||
        meeting.where.line != where.line || meeting.where.file != where.file) {
      fail(FaultKind::kDivergence, *self, where, [&] {
        return std::string("in ") + instruction + ", while lanes of its warp are in " +
               meeting.instruction + " at " + text_of(meeting.where);
      });
    }
    meeting.arrived |= bit;
    if (meeting.arrived == mask) {
      warp.meetings.erase(warp.meetings.begin() + static_cast<ptrdiff_t>(i));
      return true;
    }
    wait_here();
    return false;
  }
  if (mask == bit) return true;
  warp.meetings.push_back({instruction, where, mask, bit});
  wait_here();
  return false;
}

void Machine::release_lanes(Warp& warp, uint32_t lanes) {
  for (; lanes != 0; lanes &= lanes - 1) {
    ready_.push_back(warp.lanes[std::countr_zero(lanes)]);
  }
}

}  // namespace deltad::emulator
