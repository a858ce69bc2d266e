// What a block's warps share: barriers, mbarriers, copies in flight, shared memory.
#include <algorithm>
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
  join(b.known, w.clocks().release(w.number));
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
    w->clocks().acquire(w->number, done.known);
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
  if (live_warps() == 0) {
    ended = true;
    check_end();
  }
  cluster->advance_if_complete();
}

// What is in flight at the end would read or write another block's shared memory; and no other
// block of the cluster may still be at this one's.
void Block::check_end() {
  if (!pending.empty()) {
    pending[0].warp->fault(*pending[0].by,
                           name_of("block", index) + " ended while this copy was in flight");
  }
  for (Warp& w : warps) {
    for (int l = 0; l < 32; ++l) {
      const std::vector<BulkStore>& s = w.stores[static_cast<size_t>(l)];
      if (!s.empty()) w.fault(*s[0].by, "the block ended while this store was in flight", l);
    }
  }
  for (uint32_t number = 0; number < visits.size(); ++number) {
    const Visit& v = visits[number];
    const bool known = std::any_of(warps.begin(), warps.end(), [&](const Warp& w) {
      return w.clocks().known_end(w.number, number) >= v.interval;
    });
    if (known) continue;
    const auto per_block = static_cast<uint32_t>(warps.size());
    const Warp& visitor = cluster->blocks[number / per_block]->warps[number % per_block];
    visitor.fault(*v.by,
                  "it uses the shared memory of " + name_of("block", index) +
                      ", and nothing orders that before the end of that block",
                  v.lane);
  }
}

MBarrier& Block::mbarrier_at(Warp& w, const Instr& i, uint64_t address, int lane) {
  const bool other = w.block != this;
  const auto it = mbarriers.find(static_cast<uint32_t>(address));
  if (address > shared.size() || it == mbarriers.end()) {
    w.fault(i,
            "there is no mbarrier at shared address " + std::to_string(address) +
                (other ? " of " + name_of("block", index) : ""),
            lane);
  }
  const MBarrier& m = it->second;
  if (!w.clocks().knows_mbarrier(w.number, m.maker->number, m.made)) {
    w.fault(i, "nothing orders the mbarrier's init before this", lane);
  }
  if (other && !m.fenced) {
    w.fault(i,
            "no fence.mbarrier_init came after the mbarrier's init, which is of " +
                name_of("block", index),
            lane);
  }
  return it->second;
}

void Block::advance_if_complete(MBarrier& m) {
  if (m.pending != 0 || m.bytes != 0) return;
  ++m.phase;
  const MBarrier::Known known = std::exchange(m.arriving, {});
  join(m.completed.here, known.here);
  join(m.completed.beyond, known.beyond);
  join(m.completed.ends, known.ends);
  m.pending = m.expected;
  ++grid->events;
}

void Block::land(size_t which) {
  const Pending p = std::move(pending[which]);
  pending.erase(pending.begin() + static_cast<std::ptrdiff_t>(which));
  for (const CopyIn& c : p.copies) ptx::land(*p.warp, c);
  MBarrier& m = mbarrier_at(*p.warp, *p.by, p.mbarrier, -1);
  m.bytes -= p.bytes;
  if (m.bytes <= -kMostBytes) p.warp->fault(*p.by, "more bytes than an mbarrier counts");
  if (p.arrivals > m.pending) p.warp->fault(*p.by, "more arrivals than the mbarrier expects");
  m.pending -= p.arrivals;
  // Whoever sent it, a copy is complete in the block whose mbarrier says so.
  join(m.arriving.here, p.arrivals > 0 ? p.warp->clocks().release(p.warp->number) : p.known);
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
