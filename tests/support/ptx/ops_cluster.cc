// Clusters: addresses in other blocks' shared memory, the barrier of a cluster's threads.
#include "tests/support/ptx/lanes.h"

namespace deltad::ptx {
namespace {

// The cluster's address of what lies at the same place in the block of rank b. T: 32 bits for
// .shared::cluster, 64 for generic addresses, which keep their window.
template <typename T>
void map_address(Warp& w, const Instr& i, uint32_t lanes) {
  const Slot<T>* from = slots<T>(w, i.op[1]);
  const uint32_t* to = w.u32(i.op[2]);
  Slot<T>* d = slots<T>(w, i.op[0]);
  for_lanes(lanes, [&](int l) {
    const uint64_t window = sizeof(T) == 8 ? kSharedWindow : 0;
    const uint64_t a = from[l] - window;
    const uint32_t blocks = static_cast<uint32_t>(w.block->cluster->blocks.size());
    if (to[l] >= blocks) {
      w.fault(i,
              "rank " + std::to_string(to[l]) + " in a cluster of " + std::to_string(blocks) +
                  " blocks",
              l);
    }
    if (a / kBlockWindow > blocks) w.fault(i, "not an address of shared memory", l);
    d[l] = static_cast<Slot<T>>(window + cluster_address(to[l], a % kBlockWindow));
  });
}

// The rank of the block that an address lies in.
template <typename T>
void rank_of(Warp& w, const Instr& i, uint32_t lanes) {
  for_lanes(lanes, [&](int l) {
    const uint64_t a = slots<T>(w, i.op[1])[l] - (sizeof(T) == 8 ? kSharedWindow : 0);
    if (a / kBlockWindow > w.block->cluster->blocks.size()) {
      w.fault(i, "not an address of shared memory", l);
    }
    w.u32(i.op[0])[l] =
        a < kBlockWindow ? w.block->rank : static_cast<uint32_t>(a / kBlockWindow - 1);
  });
}

// Shared addresses have 32 bits here, generic ones 64.
bool takes_generic(Decoder& d) {
  const bool shared = d.take("shared::cluster");
  const Type t = d.type();
  if (t != (shared ? Type::kU32 : Type::kU64)) d.unknown("its type");
  return !shared;
}

void build_map(Decoder& d) {
  const bool generic = takes_generic(d);
  const Type t = generic ? Type::kU64 : Type::kU32;
  d.dst(0, t);
  d.src(1, t);
  d.src(2, Type::kU32);
  d.emit(generic ? &map_address<uint64_t> : &map_address<uint32_t>);
}

void build_rank(Decoder& d) {
  const bool generic = takes_generic(d);
  d.dst(0, Type::kU32);
  d.src(1, generic ? Type::kU64 : Type::kU32);
  d.emit(generic ? &rank_of<uint64_t> : &rank_of<uint32_t>);
}

// aux[0]: it releases.
void arrive(Warp& w, const Instr& i, uint32_t) { w.block->cluster->arrive(w, i, i.aux[0] != 0); }
void wait(Warp& w, const Instr& i, uint32_t) { w.block->cluster->wait(w, i); }

}  // namespace

// Warps arrive and wait as a whole, with .aligned or without.
void build_cluster_barrier(Decoder& d) {
  const bool arrives = d.take("arrive");
  if (!arrives && !d.take("wait")) d.unknown();
  d.in.flow = Flow::kBarrier;
  d.in.removable = true;
  if (arrives) {
    d.in.aux[0] = !d.take("relaxed");
    d.take("release");
  } else {
    d.take("acquire");
  }
  d.take("aligned");
  d.emit(arrives ? &arrive : &wait);
}

void add_cluster_ops(Builders& b) {
  b["mapa"] = &build_map;
  b["getctarank"] = &build_rank;
}

}  // namespace deltad::ptx
