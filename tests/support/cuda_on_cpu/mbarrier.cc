// mbarriers and bulk copies: the members of Machine that make them.
#include <bit>
#include <cstring>
#include <utility>

#include "tests/support/cuda_on_cpu/machine.h"
#include "tests/support/cuda_on_cpu/memory.h"

namespace deltad::emulator {

// To the race detector the barrier's 8 bytes are written by init and read by all uses.
void Machine::mbarrier_init(uint32_t offset, uint32_t arrivals, Where where) {
  shared_write(offset, 8, where);
  MBarrier& barrier = current->block->mbarriers[offset];
  barrier = {};
  barrier.arrivals = barrier.missing = arrivals;
  barrier.maker = current;
}

void Machine::mbarrier_init_fence(Where where) {
  if (!on(SiteKind::kProxyFence, where)) return;
  for (auto& [offset, barrier] : current->block->mbarriers) {
    barrier.fenced = barrier.fenced || barrier.maker == current;
  }
}

// Of any block of the cluster. Who was not shown it by the cluster's barrier must know its init.
MBarrier& Machine::mbarrier_at(Block& block, uint32_t offset, Where where) {
  shared_target(offset, 8, 8, where);
  const auto found = block.mbarriers.find(offset);
  const bool made = found != block.mbarriers.end();
  const bool shown =
      made && found->second.shown_phase > 0 && found->second.shown_phase <= current->seen_phase;
  check(block.races->read(current->clock, block.shared_at + offset, 8,
                          shown ? found->second.maker->clock : RaceDetector::kNobody),
        *current, false, where);
  if (!made) {
    fail(FaultKind::kUninitialised, *current, where,
         [&] { return "no mbarrier was made at byte " + std::to_string(offset); });
  }
  return found->second;
}

void Machine::end_phase_if_complete(MBarrier& barrier) {
  if (barrier.missing > 0 || barrier.missing_bytes != 0) return;
  barrier.missing = barrier.arrivals;
  barrier.parity ^= 1;
  barrier.last_clock = std::exchange(barrier.clock, {});
  for (Thread* thread : barrier.waiting) {
    thread->block->races->take(thread->clock, barrier.last_clock);
    thread->waits_for = nullptr;
    ready_.push_back(thread);
  }
  barrier.waiting.clear();
}

void Machine::mbarrier_arrive(uint32_t offset, uint32_t bytes, Where where) {
  if (on(SiteKind::kBarrier, where)) arrive_at(*current->block, offset, bytes, where);
}

void Machine::mbarrier_arrive_at(uint32_t offset, uint32_t rank, Where where) {
  if (!on(SiteKind::kBarrier, where)) return;
  Block& block = peer(rank, where);
  if (&block != current->block) {
    note_remote_act(block, current->clock, block.races->time(current->clock), where);
  }
  arrive_at(block, offset, 0, where);
}

void Machine::arrive_at(Block& block, uint32_t offset, uint32_t bytes, Where where) {
  MBarrier& barrier = mbarrier_at(block, offset, where);
  ++report_.counters.barriers;
  if (barrier.missing == 0) {
    fail(FaultKind::kDivergence, *current, where,
         [] { return std::string("more arrivals than the mbarrier's phase has"); });
  }
  --barrier.missing;
  barrier.missing_bytes += bytes;
  block.races->give(current->clock, barrier.clock);
  end_phase_if_complete(barrier);
}

void Machine::mbarrier_wait(uint32_t offset, uint32_t parity, Where where) {
  if (!on(SiteKind::kWait, where)) return;
  if (weaker(SiteKind::kWait, where)) parity ^= 1;
  MBarrier& barrier = mbarrier_at(*current->block, offset, where);
  Thread* self = current;
  if (barrier.parity != parity) {  // that phase has ended
    if (!barrier.last_clock.empty()) {
      self->block->races->take(self->clock, barrier.last_clock);
    }
    return;
  }
  self->waits_in = "an mbarrier";
  self->waits_at = where;
  self->waits_for = &barrier;
  barrier.waiting.push_back(self);
  wait_here();
}

void Machine::start_bulk_copy(const BulkCopy& copy, Where where) {
  start_bulk_copy(copy, 1u << current->block->rank, where);
}

void Machine::start_bulk_copy(const BulkCopy& copy, uint32_t blocks, Where where) {
  if (copy.bytes == 0 || copy.bytes % 16 != 0) {
    fail(FaultKind::kMisaligned, *current, where,
         [&] { return "a bulk copy of " + std::to_string(copy.bytes) + " bytes"; });
  }
  const std::byte* source = global_read_bulk(copy.source, copy.bytes, where);
  shared_target(copy.offset, copy.bytes, 16, where);
  for (; blocks != 0; blocks &= blocks - 1) {
    Block& block = peer(static_cast<uint32_t>(std::countr_zero(blocks)), where);
    if (!mbarrier_at(block, copy.barrier, where).fenced &&
        !block.races->fenced(block.shared_at + copy.barrier, 8)) {
      fail(FaultKind::kStale, *current, where, [] {
        return std::string("no fence_proxy_async between the mbarrier's init and the copy");
      });
    }
    check(block.races->copy_starts(current->clock, block.shared_at + copy.offset, copy.bytes),
          *current, true, where);
    std::memset(block.shared.data() + copy.offset, 0xff, copy.bytes);
    const bool remote = &block != current->block;
    block.bulk_copies.push_back({copy.offset, source, copy.bytes, copy.barrier, remote, where});
  }
}

// One copy, of any block, arrives: the oldest, the newest or any, as threads go.
bool Machine::deliver_bulk_copy() {
  std::vector<Block*> blocks;
  for (const auto& cluster : clusters_) {
    for (const auto& block : cluster->blocks) {
      if (!block->bulk_copies.empty()) blocks.push_back(block.get());
    }
  }
  if (blocks.empty()) return false;
  size_t chosen = 0;
  if (options_.order == Order::kLifo) chosen = blocks.size() - 1;
  if (options_.order == Order::kRandom) chosen = random_() % blocks.size();
  Block& block = *blocks[chosen];
  std::vector<BulkCopy>& copies = block.bulk_copies;
  size_t index = 0;
  if (options_.order == Order::kLifo) index = copies.size() - 1;
  if (options_.order == Order::kRandom) index = random_() % copies.size();
  const BulkCopy copy = copies[index];
  copies.erase(copies.begin() + static_cast<ptrdiff_t>(index));
  std::memcpy(block.shared.data() + copy.offset, copy.source, copy.bytes);
  MBarrier& barrier = block.mbarriers.at(copy.barrier);
  const uint32_t time =
      block.races->bulk_copy_lands(block.shared_at + copy.offset, copy.bytes, barrier.clock);
  if (copy.remote) note_remote_act(block, block.races->engine(), time, copy.where);
  barrier.missing_bytes -= copy.bytes;
  end_phase_if_complete(barrier);
  return true;
}

}  // namespace deltad::emulator
