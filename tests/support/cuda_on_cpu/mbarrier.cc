// mbarriers and bulk copies: the members of Machine that make them.
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
}

MBarrier& Machine::mbarrier_at(uint32_t offset, Where where) {
  shared_read(offset, 8, where);
  const auto found = current->block->mbarriers.find(offset);
  if (found == current->block->mbarriers.end()) {
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
    thread->block->races->take(thread->index, barrier.last_clock);
    ready_.push_back(thread);
  }
  barrier.waiting.clear();
}

void Machine::mbarrier_arrive(uint32_t offset, uint32_t bytes, Where where) {
  if (!on(SiteKind::kBarrier, where)) return;
  MBarrier& barrier = mbarrier_at(offset, where);
  ++report_.counters.barriers;
  if (barrier.missing == 0) {
    fail(FaultKind::kDivergence, *current, where,
         [] { return std::string("more arrivals than the mbarrier's phase has"); });
  }
  --barrier.missing;
  barrier.missing_bytes += bytes;
  current->block->races->give(current->index, barrier.clock);
  end_phase_if_complete(barrier);
}

void Machine::mbarrier_wait(uint32_t offset, uint32_t parity, Where where) {
  if (!on(SiteKind::kWait, where)) return;
  if (weaker(SiteKind::kWait, where)) parity ^= 1;
  MBarrier& barrier = mbarrier_at(offset, where);
  Thread* self = current;
  if (barrier.parity != parity) {  // that phase has ended
    if (!barrier.last_clock.empty()) {
      self->block->races->take(self->index, barrier.last_clock);
    }
    return;
  }
  self->waits_in = "an mbarrier";
  self->waits_at = where;
  barrier.waiting.push_back(self);
  wait_here();
}

void Machine::start_bulk_copy(const BulkCopy& copy, Where where) {
  Block& block = *current->block;
  if (copy.bytes == 0 || copy.bytes % 16 != 0) {
    fail(FaultKind::kMisaligned, *current, where,
         [&] { return "a bulk copy of " + std::to_string(copy.bytes) + " bytes"; });
  }
  mbarrier_at(copy.barrier, where);
  if (!block.races->fenced(copy.barrier, 8)) {
    fail(FaultKind::kStale, *current, where, [] {
      return std::string("no fence_proxy_async between the mbarrier's init and the copy");
    });
  }
  const std::byte* source = global_read_bulk(copy.source, copy.bytes, where);
  std::memset(shared_target(copy.offset, copy.bytes, 16, where), 0xff, copy.bytes);
  check(block.races->copy_starts(current->index, copy.offset, copy.bytes), *current, true, where);
  block.bulk_copies.push_back({copy.offset, source, copy.bytes, copy.barrier});
}

// One copy, of any block, arrives: the oldest, the newest or any, as threads go.
bool Machine::deliver_bulk_copy() {
  std::vector<Block*> blocks;
  for (const auto& block : blocks_) {
    if (!block->bulk_copies.empty()) blocks.push_back(block.get());
  }
  if (blocks.empty()) return false;
  Block& block = *blocks[options_.order == Order::kRandom ? random_() % blocks.size() : 0];
  std::vector<BulkCopy>& copies = block.bulk_copies;
  size_t index = 0;
  if (options_.order == Order::kLifo) index = copies.size() - 1;
  if (options_.order == Order::kRandom) index = random_() % copies.size();
  const BulkCopy copy = copies[index];
  copies.erase(copies.begin() + static_cast<ptrdiff_t>(index));
  std::memcpy(block.shared.data() + copy.offset, copy.source, copy.bytes);
  MBarrier& barrier = block.mbarriers.at(copy.barrier);
  block.races->bulk_copy_lands(copy.offset, copy.bytes, barrier.clock);
  barrier.missing_bytes -= copy.bytes;
  end_phase_if_complete(barrier);
  return true;
}

}  // namespace deltad::emulator
