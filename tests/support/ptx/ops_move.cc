// mov, selp, setp and set: values and predicates from place to place.
#include <cmath>

#include "tests/support/ptx/lanes.h"
#include "tests/support/ptx/minifloat.h"

namespace deltad::ptx {
namespace {

template <typename S>
void move(Warp& w, const Instr& i, uint32_t lanes) {
  Slot<S>* d = slots<S>(w, i.op[0]);
  const Slot<S>* s = slots<S>(w, i.op[1]);
  for_lanes(lanes, [&](int l) { d[l] = s[l]; });
}

void move_predicate(Warp& w, const Instr& i, uint32_t lanes) {
  w.set_predicate(i.op[0], lanes, w.predicate(i.op[1]));
}

// A vector of n parts into one register, or back. aux[0]: bits of a part.
void pack(Warp& w, const Instr& i, uint32_t lanes) {
  const uint32_t bits = i.aux[0];
  for_lanes(lanes, [&](int l) {
    uint64_t v = 0;
    for (uint32_t e = 0; e < i.n; ++e) {
      const uint64_t part = w.u32(i.op[1 + e])[l];
      v |= (bits == 32 ? part : part & ((uint64_t{1} << bits) - 1)) << (bits * e);
    }
    if (bits * i.n == 64) {
      w.u64(i.op[0])[l] = v;
    } else {
      w.u32(i.op[0])[l] = static_cast<uint32_t>(v);
    }
  });
}

void unpack(Warp& w, const Instr& i, uint32_t lanes) {
  const uint32_t bits = i.aux[0];
  for_lanes(lanes, [&](int l) {
    const uint64_t v = bits * i.n == 64 ? w.u64(i.op[i.n])[l] : w.u32(i.op[i.n])[l];
    for (uint32_t e = 0; e < i.n; ++e) {
      w.u32(i.op[e])[l] = static_cast<uint32_t>(v >> (bits * e) & ((uint64_t{1} << bits) - 1));
    }
  });
}

Type part_of(const Decoder& d, uint32_t bits) {
  switch (bits) {
    case 8:
      return Type::kB8;
    case 16:
      return Type::kB16;
    case 32:
      return Type::kB32;
    default:
      d.unknown("parts of " + std::to_string(bits) + " bits");
  }
}

void build_mov(Decoder& d) {
  const Type t = d.type();
  const Operand &to = d.operand(0), &from = d.operand(1);
  if (to.kind == Operand::Kind::kVector) {
    d.in.n = static_cast<uint32_t>(to.parts.size());
    d.in.aux[0] = bits_of(t) / d.in.n;
    for (const Operand& p : to.parts) d.dst(p, part_of(d, d.in.aux[0]));
    d.src(from, t);
    return d.emit(&unpack);
  }
  d.dst(to, t);
  if (from.kind == Operand::Kind::kVector) {
    d.in.n = static_cast<uint32_t>(from.parts.size());
    d.in.aux[0] = bits_of(t) / d.in.n;
    d.src(from, part_of(d, d.in.aux[0]));
    return d.emit(&pack);
  }
  d.src(from, t);
  if (t == Type::kPred) return d.emit(&move_predicate);
  d.emit(bits_of(t) == 64 ? &move<uint64_t> : &move<uint32_t>);
}

template <typename S>
void select(Warp& w, const Instr& i, uint32_t lanes) {
  Slot<S>* d = slots<S>(w, i.op[0]);
  const Slot<S>*a = slots<S>(w, i.op[1]), *b = slots<S>(w, i.op[2]);
  const uint32_t p = w.predicate(i.op[3]);
  for_lanes(lanes, [&](int l) { d[l] = p >> l & 1 ? a[l] : b[l]; });
}

void build_selp(Decoder& d) {
  const Type t = d.type();
  d.dst(0, t);
  d.src(1, t);
  d.src(2, t);
  d.src(3, Type::kPred);
  d.emit(bits_of(t) == 64 ? &select<uint64_t> : &select<uint32_t>);
}

// Comparisons: the low three bits say whether less, equal and greater count, the fourth unordered.
enum : uint32_t { kLess = 1, kEqual = 2, kGreater = 4, kUnordered = 8 };
uint32_t comparison(const Decoder& d, const std::string& name) {
  static const std::map<std::string, uint32_t> all = {{"lt", kLess},
                                                      {"le", kLess | kEqual},
                                                      {"gt", kGreater},
                                                      {"ge", kGreater | kEqual},
                                                      {"eq", kEqual},
                                                      {"ne", kLess | kGreater},
                                                      {"lo", kLess},
                                                      {"ls", kLess | kEqual},
                                                      {"hi", kGreater},
                                                      {"hs", kGreater | kEqual},
                                                      {"ltu", kLess | kUnordered},
                                                      {"leu", kLess | kEqual | kUnordered},
                                                      {"gtu", kGreater | kUnordered},
                                                      {"geu", kGreater | kEqual | kUnordered},
                                                      {"equ", kEqual | kUnordered},
                                                      {"neu", kLess | kGreater | kUnordered},
                                                      {"num", kLess | kEqual | kGreater},
                                                      {"nan", kUnordered}};
  const auto it = all.find(name);
  if (it == all.end()) d.unknown("comparison " + name);
  return it->second;
}

struct HalfBits {
  static float get(uint32_t b) { return f16_to_float(b & 0xffff); }
  using Value = uint32_t;
};
struct BrainBits {
  static float get(uint32_t b) { return bf16_to_float(b & 0xffff); }
  using Value = uint32_t;
};
template <typename T>
struct Plain {
  static T get(Slot<T> b) { return from_slot<T>(b); }
  using Value = T;
};

// p [| q] = (a op b) combined with c. aux: comparison, combination (0 none, 1 and, 2 or, 3 xor),
// whether there is a q, whether c is negated.
template <typename Reader>
void compare(Warp& w, const Instr& i, uint32_t lanes) {
  const uint32_t sources = i.aux[2] ? 2 : 1;
  const auto *a = slots<typename Reader::Value>(w, i.op[sources]),
             *b = slots<typename Reader::Value>(w, i.op[sources + 1]);
  uint32_t less = 0, equal = 0, greater = 0;
  for_lanes(lanes, [&](int l) {
    const auto x = Reader::get(a[l]), y = Reader::get(b[l]);
    less |= uint32_t{x < y} << l;
    equal |= uint32_t{x == y} << l;
    greater |= uint32_t{x > y} << l;
  });
  const uint32_t op = i.aux[0];
  uint32_t r = (op & kLess ? less : 0) | (op & kEqual ? equal : 0) | (op & kGreater ? greater : 0) |
               (op & kUnordered ? ~(less | equal | greater) : 0);
  uint32_t not_r = ~r;
  if (i.aux[1] != 0) {
    const uint32_t c = w.predicate(i.op[sources + 2]) ^ (i.aux[3] ? ~0U : 0);
    auto combine = [&](uint32_t v) {
      return i.aux[1] == 1 ? v & c : i.aux[1] == 2 ? v | c : v ^ c;
    };
    r = combine(r);
    not_r = combine(not_r);
  }
  w.set_predicate(i.op[0], lanes, r);
  if (i.aux[2]) w.set_predicate(i.op[1], lanes, not_r);
}

void build_setp(Decoder& d) {
  d.in.compares = true;
  d.in.aux[0] = comparison(d, d.next());
  if (d.take("and")) d.in.aux[1] = 1;
  if (d.take("or")) d.in.aux[1] = 2;
  if (d.take("xor")) d.in.aux[1] = 3;
  const Type t = d.type();
  if (d.operand(0).kind == Operand::Kind::kPair) {
    d.in.aux[2] = 1;
    for (const Operand& o : d.operand(0).parts) d.dst(o, Type::kPred);
  } else {
    d.dst(0, Type::kPred);
  }
  d.src(1, t);
  d.src(2, t);
  if (d.in.aux[1] != 0) {
    d.in.aux[3] = d.src_predicate(3);
  }
  if (t == Type::kF32) return d.emit(&compare<Plain<float>>);
  if (t == Type::kF64) return d.emit(&compare<Plain<double>>);
  if (t == Type::kF16) return d.emit(&compare<HalfBits>);
  if (t == Type::kBF16) return d.emit(&compare<BrainBits>);
  d.emit(for_integer(d, t, [](auto zero) -> Handler { return &compare<Plain<decltype(zero)>>; }));
}

}  // namespace

void add_move_ops(Builders& b) {
  b["mov"] = &build_mov;
  b["selp"] = &build_selp;
  b["setp"] = &build_setp;
}

}  // namespace deltad::ptx
