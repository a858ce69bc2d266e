// What a block's warps share: barriers, mbarriers, copies in flight, shared memory.
#include <utility>

#include "tests/support/ptx/machine.h"

namespace deltad::ptx {

uint32_t Block::live_warps() const {
  uint32_t n = 0;
  for (const Warp& w : warps) n += w.live != 0;
  return n;
}

void Block::arrive(Warp& w, const Instr& i, uint32_t id, uint32_t count, bool wait) {
  if (count % 32 != 0) w.fault(i, "a barrier's count must be a multiple of 32");
  Barrier& b = barriers[id];
  if (b.arrived == 0) {
    b.needed = count;
  } else if (b.needed != count) {
    w.fault(i, "other warps came to this barrier with count " + std::to_string(b.needed) +
                   ", this one with " + std::to_string(count));
  }
  join(b.known, races.release(w.index));
  b.arrived += 32;  // whole warps count, also one with fewer threads
  if (wait) {
    w.at_barrier = static_cast<int>(id);
    b.waiters.emplace_back(&w, &i);
  }
  release_if_full(id);
}

void Block::release_if_full(uint32_t id) {
  Barrier& b = barriers[id];
  const uint32_t needed = b.needed != 0 ? b.needed : 32 * live_warps();
  if (b.arrived == 0 || b.arrived < needed) return;
  const Barrier done = std::exchange(b, {});
  ++grid->events;
  for (const auto& [w, i] : done.waiters) {
    w->at_barrier = -1;
    races.acquire(w->index, done.known);
    switch (i->aux[1]) {
      case kVotesCount:
        for_lanes(w->live, [&, v = w, in = i](int l) { v->u32(in->op[3])[l] = done.votes; });
        break;
      case kVotesAll:
        w->set_predicate(i->op[3], w->live, done.votes == done.voters ? ~0U : 0);
        break;
      case kVotesAny:
        w->set_predicate(i->op[3], w->live, done.votes > 0 ? ~0U : 0);
        break;
      default:
        break;
    }
  }
}

// Barriers wait only for the warps that are left.
void Block::warp_ended() {
  ++grid->events;
  for (uint32_t id = 0; id < barriers.size(); ++id) release_if_full(id);
}

MBarrier& Block::mbarrier_at(Warp& w, const Instr& i, uint64_t address, int lane) {
  const auto it = mbarriers.find(static_cast<uint32_t>(address));
  if (address > shared.size() || it == mbarriers.end()) {
    w.fault(i, "there is no mbarrier at shared address " + std::to_string(address), lane);
  }
  return it->second;
}

void Block::advance_if_complete(MBarrier& m) {
  if (m.pending != 0 || m.bytes != 0) return;
  ++m.phase;
  join(m.completed, std::exchange(m.arriving, {}));
  m.pending = m.expected;
  ++grid->events;
}

void Block::land(size_t which) {
  const Pending p = std::move(pending[which]);
  pending.erase(pending.begin() + static_cast<std::ptrdiff_t>(which));
  for (const CopyIn& c : p.copies) ptx::land(*p.warp, c);
  MBarrier& m = mbarrier_at(*p.warp, *p.by, p.mbarrier, -1);
  m.bytes -= p.bytes;
  if (p.arrivals > m.pending) p.warp->fault(*p.by, "more arrivals than the mbarrier expects");
  m.pending -= p.arrivals;
  join(m.arriving, p.arrivals > 0 ? races.release(p.warp->index) : p.known);
  advance_if_complete(m);
  ++grid->events;
}

void Block::require_proxy_fence(Warp& w, const Instr& i, uint64_t address, uint32_t bytes,
                                int lane) {
  for (uint64_t a = address / 16; a <= (address + bytes - 1) / 16; ++a) {
    const auto& [time, writer] = generic_writes[a];
    if (writer != nullptr && writer->proxy_fence < time) {
      w.fault(i,
              "bytes at shared address " + std::to_string(16 * a) +
                  " were stored by ordinary instructions with no fence.proxy.async after it",
              lane);
    }
  }
}

void Block::forget_generic_writes(uint64_t address, uint32_t bytes) {
  for (uint64_t a = address / 16; a <= (address + bytes - 1) / 16; ++a) {
    generic_writes[a] = {0, nullptr};
  }
}

}  // namespace deltad::ptx
