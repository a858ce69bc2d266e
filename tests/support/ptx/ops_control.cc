// Branches, ends, barriers, fences, and what has no effect here.
#include "tests/support/ptx/decode.h"

namespace deltad::ptx {
namespace {

void nothing(Warp&, const Instr&, uint32_t) {}
void trap(Warp& w, const Instr& i, uint32_t) { w.fault(i, "the kernel trapped"); }

void build_bra(Decoder& d) {
  d.take("uni");
  d.in.flow = Flow::kBranch;
  d.in.target = d.label(0);
  d.emit(&nothing);
}

void build_ret(Decoder& d) {
  d.take("uni");
  d.in.flow = Flow::kExit;
  d.emit(&nothing);
}

// op: id, count. aux[0]: whether it waits. aux[1]: a Vote, with op: …, predicate, result, and
// aux[2]: whether the predicate is negated.
void at_barrier(Warp& w, const Instr& i, uint32_t lanes) {
  const int l = __builtin_ctz(lanes);
  const uint32_t id = w.u32(i.op[0])[l];
  if (id >= 16) w.fault(i, "there are 16 barriers; this is number " + std::to_string(id), l);
  if (i.aux[1] != 0) {
    Block::Barrier& b = w.block->barriers[id];
    const uint32_t votes = w.predicate(i.op[2]) ^ (i.aux[2] ? ~0U : 0);
    b.voters += static_cast<uint32_t>(__builtin_popcount(lanes));
    b.votes += static_cast<uint32_t>(__builtin_popcount(votes & lanes));
  }
  w.block->arrive(w, i, id, w.u32(i.op[1])[l], i.aux[0] != 0);
}

void meet(Warp& w, const Instr&, uint32_t) { w.clocks().meet(w.number); }

void build_warp_barrier(Decoder& d) {
  if (!d.take("sync")) d.unknown();
  d.in.flow = Flow::kConverge;
  d.in.mask_op = 0;
  d.src(0, Type::kB32);
  d.emit(&meet);
}

void build_barrier(Decoder& d) {
  if (d.take("cluster")) return build_cluster_barrier(d);
  d.take("cta");
  const std::string what = d.next();
  d.in.removable = true;
  if (what == "warp") return build_warp_barrier(d);
  d.in.flow = Flow::kBarrier;
  d.in.aux[0] = what != "arrive";
  const bool votes = what == "red";
  if (votes) {
    d.in.aux[1] = d.take("popc")  ? kVotesCount
                  : d.take("and") ? kVotesAll
                  : d.take("or")  ? kVotesAny
                                  : uint32_t{0};
    if (d.in.aux[1] == 0) d.unknown();
    d.in.removable = false;  // it would leave no result
  } else if (what != "sync" && what != "arrive") {
    d.unknown();
  }
  d.take("aligned");
  // [result,] id [, count] [, predicate]
  const size_t id = votes ? 1 : 0, count = d.operands() - (votes ? 1 : 0) - id - 1;
  d.src(id, Type::kB32);
  if (count > 0) {
    d.src(id + 1, Type::kB32);
  } else {
    d.constant(0, Type::kB32);
  }
  if (votes) {
    const Type t = d.type();
    d.in.aux[2] = d.src_predicate(d.operands() - 1);
    d.dst(size_t{0}, t);
  }
  d.emit(&at_barrier);
}

void fence_proxy(Warp& w, const Instr&, uint32_t) { w.proxy_fence = ++w.block->grid->clock; }

// What came before becomes known by the relaxed arrivals that follow: all of it, or only the
// mbarriers that these lanes made.
void fence_all(Warp& w, const Instr&, uint32_t) { join(w.fenced, w.clocks().release(w.number)); }
void fence_mbarriers(Warp& w, const Instr&, uint32_t lanes) {
  for (auto& [address, m] : w.block->mbarriers) {
    m.fenced |= m.maker == &w && (lanes >> m.maker_lane & 1);
  }
  join(w.fenced, w.clocks().start_of(w.number, w.clocks().mbarriers(w.number)));
}

// Memory has one order here: only the fence between the proxies and what relaxed arrivals need have
// an effect.
void build_fence(Decoder& d) {
  if (d.take("proxy")) {
    if (!d.take("async")) d.unknown();
    d.take("shared::cta");
    d.take("global");
    d.in.removable = true;
    return d.emit(&fence_proxy);
  }
  if (d.take("mbarrier_init")) {
    if (!d.take("release") || !d.take("cluster")) d.unknown();
    d.in.removable = true;
    return d.emit(&fence_mbarriers);
  }
  bool beyond_block = false;
  for (bool more = true; more;) {
    more = d.take("sc") || d.take("acq_rel") || d.take("acquire") || d.take("release") ||
           d.take("cta");
    if (d.take("cluster") || d.take("gpu") || d.take("sys") || d.take("gl")) {
      more = beyond_block = true;
    }
  }
  d.emit(beyond_block ? &fence_all : &nothing);
}

void see_previous_end(Warp& w, const Instr&, uint32_t lanes) { w.saw_previous_end |= lanes; }

void build_dependency(Decoder& d) {
  if (d.take("launch_dependents")) return d.emit(&nothing);
  if (!d.take("wait")) d.unknown();
  d.in.removable = true;
  d.emit(&see_previous_end);
}

}  // namespace

void add_control_ops(Builders& b) {
  b["bra"] = &build_bra;
  b["ret"] = &build_ret;
  b["exit"] = &build_ret;
  b["bar"] = &build_barrier;
  b["barrier"] = &build_barrier;
  b["fence"] = &build_fence;
  b["membar"] = &build_fence;
  b["trap"] = [](Decoder& d) { d.emit(&trap); };
  b["brkpt"] = b["trap"];
  b["griddepcontrol"] = &build_dependency;
  // Hints: about registers, time and caches.
  b["setmaxnreg"] = b["nanosleep"] = b["createpolicy"] = [](Decoder& d) {
    while (!d.done()) d.next();
    d.emit(&nothing);
  };
}

}  // namespace deltad::ptx
