// What a cluster's blocks share: its barrier, and each other's memory.
#include <algorithm>

#include "tests/support/ptx/machine.h"

namespace deltad::ptx {

bool Cluster::ended() const {
  return std::all_of(blocks.begin(), blocks.end(), [](const auto& b) { return b->ended; });
}

void Cluster::arrive(Warp& w, const Instr& i, bool releases) {
  if (w.cluster_arrival != 0) {
    w.fault(i, "it arrives again with no barrier.cluster.wait since it did");
  }
  w.cluster_arrival = phase + 1;
  join(arriving, releases ? clocks.release(w.number) : w.fenced);
  advance_if_complete();
}

void Cluster::wait(Warp& w, const Instr& i) {
  if (w.cluster_arrival == 0) w.fault(i, "no barrier.cluster.arrive came before it");
  if (w.cluster_arrival > phase) {
    w.at_barrier = Warp::kClusterBarrier;
    return;
  }
  w.cluster_arrival = 0;
  clocks.acquire(w.number, completed);
}

// The barrier waits only for the warps that are left. None is a phase ahead of another: to arrive
// again it must have waited.
void Cluster::advance_if_complete() {
  bool any = false;
  for (const auto& b : blocks) {
    for (const Warp& w : b->warps) {
      if (w.live != 0 && w.cluster_arrival != phase + 1) return;
      any |= w.live != 0;
    }
  }
  if (!any) return;
  ++phase;
  ++grid->events;
  completed = std::exchange(arriving, {});
  for (const auto& b : blocks) {
    for (Warp& w : b->warps) {
      if (w.at_barrier != Warp::kClusterBarrier) continue;
      w.at_barrier = -1;
      w.cluster_arrival = 0;
      clocks.acquire(w.number, completed);
    }
  }
}

SharedPlace window_place(Warp& w, const Instr& i, uint64_t address, int lane) {
  const uint64_t rank = address / kBlockWindow - 1;
  const Cluster& c = *w.block->cluster;
  if (rank >= c.blocks.size()) return {w.block, address};  // out of bounds
  Block& b = *c.blocks[rank];
  if (&b != w.block) {
    if (!i.beyond) {
      w.fault(i, "the address is of " + name_of("block", b.index) + ", and not .shared::cluster",
              lane);
    }
    visit(w, i, b, lane);
  }
  return {&b, address % kBlockWindow};
}

void visit(Warp& w, const Instr& i, Block& to, int lane) {
  if (to.ended) {
    w.fault(i, name_of("block", to.index) + ", whose shared memory this is, has ended", lane);
  }
  const bool started = std::any_of(to.warps.begin(), to.warps.end(), [&](const Warp& other) {
    return w.clocks().knows_mbarrier(w.number, other.number, 1);
  });
  if (!started) {
    w.fault(i,
            "nothing orders the start of " + name_of("block", to.index) +
                " before this: a barrier of the cluster must come first",
            lane);
  }
  to.visits[w.number] = {&i, w.clocks().now(w.number), lane};
}

}  // namespace deltad::ptx
