// mbarrier: barriers in shared memory that count arrivals and bytes. Their state lies beside the
// shared memory, by address; the address's bytes stay poisoned.
#include "tests/support/ptx/lanes.h"

namespace deltad::ptx {
namespace {

uint64_t address(Warp& w, const Instr& i, int l) { return to_shared(address_of(w, i, 0, l)); }

void init(Warp& w, const Instr& i, uint32_t lanes) {
  for_lanes(lanes, [&](int l) {
    const uint64_t a = address(w, i, l);
    const uint32_t count = w.u32(i.op[0])[l];
    if (a % 8 != 0) w.fault(i, "misaligned address", l);
    if (count == 0 || count >= 1U << 20) w.fault(i, "a count of " + std::to_string(count), l);
    shared_at(w, i, a, 8, l);
    const MBarrier m{.expected = count, .pending = count};
    if (!w.block->mbarriers.emplace(static_cast<uint32_t>(a), m).second) {
      w.fault(i, "there is an mbarrier already", l);
    }
  });
}

void invalidate(Warp& w, const Instr& i, uint32_t lanes) {
  for_lanes(lanes, [&](int l) {
    const uint64_t a = address(w, i, l);
    w.block->mbarrier_at(w, i, a, l);
    w.block->mbarriers.erase(static_cast<uint32_t>(a));
  });
}

void subtract(Warp& w, const Instr& i, MBarrier& m, uint32_t count, int l) {
  if (count > m.pending) w.fault(i, "more arrivals than the mbarrier expects", l);
  m.pending -= count;
  join(m.arriving, w.block->races.release(w.index));
  w.block->advance_if_complete(m);
}

// op: the state (the phase that goes on), then the count.
void arrive(Warp& w, const Instr& i, uint32_t lanes) {
  for_lanes(lanes, [&](int l) {
    MBarrier& m = w.block->mbarrier_at(w, i, address(w, i, l), l);
    w.u64(i.op[0])[l] = m.phase;
    subtract(w, i, m, w.u32(i.op[1])[l], l);
  });
}

// op: the state, then the bytes.
void arrive_expect(Warp& w, const Instr& i, uint32_t lanes) {
  for_lanes(lanes, [&](int l) {
    MBarrier& m = w.block->mbarrier_at(w, i, address(w, i, l), l);
    w.u64(i.op[0])[l] = m.phase;
    m.bytes += w.u32(i.op[1])[l];
    subtract(w, i, m, 1, l);
  });
}

void expect(Warp& w, const Instr& i, uint32_t lanes) {
  for_lanes(lanes, [&](int l) {
    w.block->mbarrier_at(w, i, address(w, i, l), l).bytes += w.u32(i.op[0])[l];
  });
}

// op: whether the phase is over, then the state of an arrival (kParity: the phase's parity).
template <bool kParity>
void test(Warp& w, const Instr& i, uint32_t lanes) {
  uint32_t done = 0;
  for_lanes(lanes, [&](int l) {
    const MBarrier& m = w.block->mbarrier_at(w, i, address(w, i, l), l);
    const bool over =
        kParity ? (m.phase & 1) != (w.u32(i.op[1])[l] & 1) : m.phase != w.u64(i.op[1])[l];
    done |= uint32_t{over} << l;
    if (over) w.block->races.acquire(w.index, m.completed);
  });
  w.set_predicate(i.op[0], lanes, done);
  w.yielded = done != lanes;
}

void space(Decoder& d) { d.take("shared") || d.take("shared::cta"); }
void order(Decoder& d) {
  d.take("release") || d.take("acquire") || d.take("relaxed");
  d.take("cta") || d.take("cluster");
}
void type(Decoder& d) {
  if (d.type() != Type::kB64) d.unknown("its type");
}

void build_arrive(Decoder& d) {
  const bool expects = d.take("expect_tx");
  order(d);
  space(d);
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
    space(d);
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
