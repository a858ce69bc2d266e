// What lanes of a warp do together: shfl, vote, match, redux, elect, activemask.
#include <algorithm>

#include "tests/support/ptx/functors.h"
#include "tests/support/ptx/lanes.h"

namespace deltad::ptx {
namespace {

enum Shuffle : uint32_t { kUp, kDown, kButterfly, kIndex };

// op: d, p, a, b, c.
void shuffle(Warp& w, const Instr& i, uint32_t lanes) {
  uint32_t in[32];
  std::copy_n(w.u32(i.op[2]), 32, in);
  const uint32_t *b = w.u32(i.op[3]), *c = w.u32(i.op[4]);
  uint32_t* d = w.u32(i.op[0]);
  uint32_t taken = 0;
  for_lanes(lanes, [&](int lane) {
    const auto l = static_cast<uint32_t>(lane);
    const uint32_t segment = c[l] >> 8 & 31, clamp = c[l] & 31, by = b[l] & 31;
    const uint32_t first = l & segment, last = first | (clamp & ~segment);
    uint32_t j = 0;
    bool inside = false;
    switch (static_cast<Shuffle>(i.aux[0])) {
      case kUp:
        j = l - by;
        inside = static_cast<int32_t>(j) >= static_cast<int32_t>(last);
        break;
      case kDown:
        j = l + by;
        inside = j <= last;
        break;
      case kButterfly:
        j = l ^ by;
        inside = j <= last;
        break;
      case kIndex:
        j = first | (by & ~segment);
        inside = j <= last;
        break;
    }
    if (!inside) j = l;
    if (!(lanes >> j & 1))
      w.fault(i, "it reads lane " + std::to_string(j) + ", which takes no part", lane);
    d[l] = in[j];
    taken |= uint32_t{inside} << l;
  });
  w.set_predicate(i.op[1], lanes, taken);
}

void converge(Decoder& d, size_t mask_operand) {
  d.in.flow = Flow::kConverge;
  d.in.mask_op = static_cast<int>(d.in.n);
  d.src(mask_operand, Type::kB32);
}

void build_shfl(Decoder& d) {
  if (!d.take("sync")) d.unknown();
  const std::string mode = d.next();
  d.in.aux[0] = mode == "up" ? kUp : mode == "down" ? kDown : mode == "bfly" ? kButterfly : kIndex;
  if (d.in.aux[0] == kIndex && mode != "idx") d.unknown();
  if (d.type() != Type::kB32) d.unknown("its type");
  const Operand& to = d.operand(0);
  const bool pair = to.kind == Operand::Kind::kPair;
  d.dst(pair ? to.parts[0] : to, Type::kB32);
  d.dst(pair ? to.parts[1] : Operand(), Type::kPred);
  for (size_t s = 1; s <= 3; ++s) d.src(s, Type::kB32);
  d.in.n = 5;
  converge(d, 4);
  d.emit(&shuffle);
}

enum Poll : uint32_t { kAll, kAny, kUni, kBallot };

// op: d, the predicate. aux[1]: negated.
void vote(Warp& w, const Instr& i, uint32_t lanes) {
  const uint32_t set = (w.predicate(i.op[1]) ^ (i.aux[1] ? ~0U : 0)) & lanes;
  if (i.aux[0] == kBallot) {
    uint32_t* d = w.u32(i.op[0]);
    for_lanes(lanes, [&](int l) { d[l] = set; });
    return;
  }
  const bool r = i.aux[0] == kAll   ? set == lanes
                 : i.aux[0] == kAny ? set != 0
                                    : set == 0 || set == lanes;
  w.set_predicate(i.op[0], lanes, r ? ~0U : 0);
}

void build_vote(Decoder& d) {
  if (!d.take("sync")) d.unknown();
  const std::string mode = d.next();
  static const std::map<std::string, Poll> modes = {
      {"all", kAll}, {"any", kAny}, {"uni", kUni}, {"ballot", kBallot}};
  if (!modes.contains(mode)) d.unknown();
  d.in.aux[0] = modes.at(mode);
  d.dst(size_t{0}, d.type());
  d.in.aux[1] = d.src_predicate(1);
  d.in.n = 2;
  converge(d, 2);
  d.emit(&vote);
}

// op: d, a.
template <typename T>
void match_any(Warp& w, const Instr& i, uint32_t lanes) {
  const Slot<T>* a = slots<T>(w, i.op[1]);
  uint32_t r[32] = {};
  for_lanes(lanes,
            [&](int l) { for_lanes(lanes, [&](int m) { r[l] |= uint32_t{a[l] == a[m]} << m; }); });
  uint32_t* d = w.u32(i.op[0]);
  for_lanes(lanes, [&](int l) { d[l] = r[l]; });
}

void build_match(Decoder& d) {
  if (!d.take("any") || !d.take("sync")) d.unknown();
  const Type t = d.type();
  d.dst(size_t{0}, Type::kB32);
  d.src(1, t);
  d.in.n = 2;
  converge(d, 2);
  d.emit(bits_of(t) == 64 ? &match_any<uint64_t> : &match_any<uint32_t>);
}

template <typename T, typename F>
void reduce(Warp& w, const Instr& i, uint32_t lanes) {
  const uint32_t* a = w.u32(i.op[1]);
  auto r = static_cast<T>(a[__builtin_ctz(lanes)]);
  for_lanes(lanes & (lanes - 1), [&](int l) { r = F()(r, static_cast<T>(a[l])); });
  uint32_t* d = w.u32(i.op[0]);
  for_lanes(lanes, [&](int l) { d[l] = static_cast<uint32_t>(r); });
}

void build_redux(Decoder& d) {
  if (!d.take("sync")) d.unknown();
  const std::string op = d.next();
  const Type t = d.type();
  if (is_float(t) || bits_of(t) != 32) d.unknown("its type");
  d.dst(size_t{0}, t);
  d.src(1, t);
  d.in.n = 2;
  converge(d, 2);
  const bool s = t == Type::kS32;
  if (op == "add") return d.emit(&reduce<uint32_t, Add>);
  if (op == "min") return d.emit(s ? &reduce<int32_t, Min> : &reduce<uint32_t, Min>);
  if (op == "max") return d.emit(s ? &reduce<int32_t, Max> : &reduce<uint32_t, Max>);
  if (op == "and") return d.emit(&reduce<uint32_t, And>);
  if (op == "or") return d.emit(&reduce<uint32_t, Or>);
  if (op == "xor") return d.emit(&reduce<uint32_t, Xor>);
  d.unknown();
}

// op: the leader's number, whether this lane is the leader.
void elect(Warp& w, const Instr& i, uint32_t lanes) {
  const int leader = __builtin_ctz(lanes);
  for_lanes(lanes, [&](int l) { w.u32(i.op[0])[l] = static_cast<uint32_t>(leader); });
  w.set_predicate(i.op[1], lanes, 1U << leader);
}

void build_elect(Decoder& d) {
  if (!d.take("sync")) d.unknown();
  const Operand& to = d.operand(0);
  d.dst(to.parts.at(0), Type::kB32);
  d.dst(to.parts.at(1), Type::kPred);
  d.in.n = 2;
  converge(d, 1);
  d.emit(&elect);
}

void active(Warp& w, const Instr& i, uint32_t lanes) {
  for_lanes(lanes, [&](int l) { w.u32(i.op[0])[l] = lanes; });
}

}  // namespace

void add_warp_ops(Builders& b) {
  b["shfl"] = &build_shfl;
  b["vote"] = &build_vote;
  b["match"] = &build_match;
  b["redux"] = &build_redux;
  b["elect"] = &build_elect;
  b["activemask"] = [](Decoder& d) {
    d.dst(size_t{0}, d.type());
    d.emit(&active);
  };
}

}  // namespace deltad::ptx
