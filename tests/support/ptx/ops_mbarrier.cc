// mbarrier: barriers in shared memory that count arrivals and bytes. Their state lies beside the
// shared memory, by address; the address's bytes stay poisoned.
#include "tests/support/ptx/lanes.h"

namespace deltad::ptx {
namespace {

// aux[0]: how it is ordered.
enum : uint32_t { kRelaxed = 1, kCluster = 2 };

// An mbarrier of this block or, if the instruction may, of another of the cluster.
struct Place {
  Block& block;
  MBarrier& m;
};
Place place(Warp& w, const Instr& i, int l) {
  const SharedPlace p = shared_place(w, i, to_shared(address_of(w, i, 0, l)), l);
  return {*p.block, p.block->mbarrier_at(w, i, p.offset, l)};
}

void init(Warp& w, const Instr& i, uint32_t lanes) {
  for_lanes(lanes, [&](int l) {
    const uint64_t a = to_shared(address_of(w, i, 0, l));
    const uint32_t count = w.u32(i.op[0])[l];
    if (a % 8 != 0) w.fault(i, "misaligned address", l);
    if (count == 0 || count >= 1U << 20) w.fault(i, "a count of " + std::to_string(count), l);
    shared_at(w, i, a, 8, l);
    const MBarrier m{.expected = count,
                     .pending = count,
                     .maker = &w,
                     .maker_lane = l,
                     .made = w.clocks().made_mbarrier(w.number)};
    if (!w.block->mbarriers.emplace(static_cast<uint32_t>(a), m).second) {
      w.fault(i, "there is an mbarrier already", l);
    }
  });
}

void invalidate(Warp& w, const Instr& i, uint32_t lanes) {
  for_lanes(lanes, [&](int l) {
    place(w, i, l);
    w.block->mbarriers.erase(static_cast<uint32_t>(to_shared(address_of(w, i, 0, l))));
  });
}

// Between blocks, only what has the cluster's scope publishes stores; any other arrival still says
// that this warp's reads before it have ended (so CUTLASS frees the stages of its pipelines).
void subtract(Warp& w, const Instr& i, const Place& p, uint32_t count, int l) {
  MBarrier& m = p.m;
  if (count > m.pending) w.fault(i, "more arrivals than the mbarrier expects", l);
  m.pending -= count;
  const bool relaxed = i.aux[0] & kRelaxed, cluster = i.aux[0] & kCluster && !w.weakened(i);
  const Clock known = w.clocks().release(w.number);
  if (&p.block == w.block) {
    join(m.arriving.here, relaxed ? w.fenced : known);
  } else {
    if (cluster) join(m.arriving.beyond, relaxed ? w.fenced : known);
    join(m.arriving.ends, known);
  }
  p.block.advance_if_complete(m);
}

void add_bytes(Warp& w, const Instr& i, MBarrier& m, uint32_t bytes, int l) {
  m.bytes += bytes;
  if (m.bytes >= kMostBytes) w.fault(i, "more bytes than an mbarrier counts", l);
}

// op: the state (the phase that goes on), then the count.
void arrive(Warp& w, const Instr& i, uint32_t lanes) {
  for_lanes(lanes, [&](int l) {
    const Place p = place(w, i, l);
    w.u64(i.op[0])[l] = p.m.phase;
    subtract(w, i, p, w.u32(i.op[1])[l], l);
  });
}

// op: the state, then the bytes.
void arrive_expect(Warp& w, const Instr& i, uint32_t lanes) {
  for_lanes(lanes, [&](int l) {
    const Place p = place(w, i, l);
    w.u64(i.op[0])[l] = p.m.phase;
    add_bytes(w, i, p.m, w.u32(i.op[1])[l], l);
    subtract(w, i, p, 1, l);
  });
}

void expect(Warp& w, const Instr& i, uint32_t lanes) {
  for_lanes(lanes, [&](int l) { add_bytes(w, i, place(w, i, l).m, w.u32(i.op[0])[l], l); });
}

// op: whether the phase is over, then the state of an arrival (kParity: the phase's parity). What
// came from beyond the block is known only after a wait of the cluster's scope.
template <bool kParity>
void test(Warp& w, const Instr& i, uint32_t lanes) {
  uint32_t done = 0;
  for_lanes(lanes, [&](int l) {
    const MBarrier& m = place(w, i, l).m;
    const bool over =
        kParity ? (m.phase & 1) != (w.u32(i.op[1])[l] & 1) : m.phase != w.u64(i.op[1])[l];
    done |= uint32_t{over} << l;
    if (!over) return;
    w.clocks().acquire_ends(w.number, m.completed.ends);
    if (i.aux[0] & kRelaxed) return;
    w.clocks().acquire(w.number, m.completed.here);
    if (i.aux[0] & kCluster && !w.weakened(i)) w.clocks().acquire(w.number, m.completed.beyond);
  });
  w.set_predicate(i.op[0], lanes, done);
  w.yielded = done != lanes;
}

void space(Decoder& d) { d.take("shared") || d.take("shared::cta"); }
// `may`: the address may be in another block.
void space_of_cluster(Decoder& d, bool may) {
  if (!may || !d.take("shared::cluster")) return space(d);
  d.in.beyond = true;
}
void order(Decoder& d) {
  if (d.take("relaxed")) {
    d.in.aux[0] |= kRelaxed;
  } else {
    d.take("release") || d.take("acquire");
  }
  if (!d.take("cta") && d.take("cluster")) d.in.aux[0] |= kCluster;
  d.in.weakens = d.in.aux[0] == kCluster;
}
void type(Decoder& d) {
  if (d.type() != Type::kB64) d.unknown("its type");
}

void build_arrive(Decoder& d) {
  const bool expects = d.take("expect_tx");
  order(d);
  space_of_cluster(d, d.operand(0).kind == Operand::Kind::kSink);
  d.in.removable = d.in.beyond;
  type(d);
  d.dst(size_t{0}, Type::kB64);
  d.address(1);
  if (d.operands() > 2) {
    d.src(2, Type::kB32);
  } else {
    d.constant(1, Type::kB32);
  }
  d.emit(expects ? &arrive_expect : &arrive);
}

void build_wait(Decoder& d) {
  const bool parity = d.take("parity");
  order(d);
  space(d);
  type(d);
  d.in.removable = true;
  d.in.done_op = 0;
  d.dst(size_t{0}, Type::kPred);
  d.address(1);
  d.src(2, parity ? Type::kB32 : Type::kB64);  // a time limit may follow
  d.emit(parity ? &test<true> : &test<false>);
}

void build(Decoder& d) {
  if (d.take("init")) {
    space(d);
    type(d);
    d.address(0);
    d.src(1, Type::kB32);
    return d.emit(&init);
  }
  if (d.take("inval")) {
    space(d);
    type(d);
    d.address(0);
    return d.emit(&invalidate);
  }
  if (d.take("expect_tx")) {
    order(d);
    d.in.weakens = false;
    space_of_cluster(d, true);
    type(d);
    d.address(0);
    d.src(1, Type::kB32);
    return d.emit(&expect);
  }
  if (d.take("arrive")) return build_arrive(d);
  if (d.take("try_wait") || d.take("test_wait")) return build_wait(d);
  d.unknown();
}

}  // namespace

void add_mbarrier_ops(Builders& b) { b["mbarrier"] = &build; }

}  // namespace deltad::ptx
