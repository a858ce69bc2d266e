// cvt between all types and roundings; cvta between address spaces.
#include "tests/support/ptx/lanes.h"
#include "tests/support/ptx/minifloat.h"

namespace deltad::ptx {
namespace {

// Integers to integers: the source's value, cut or extended to the destination's register.
template <typename D, typename S>
void integers(Warp& w, const Instr& i, uint32_t lanes) {
  Slot<D>* d = slots<D>(w, i.op[0]);
  const Slot<S>* s = slots<S>(w, i.op[1]);
  for_lanes(lanes, [&](int l) { d[l] = to_slot<D>(static_cast<D>(from_slot<S>(s[l]))); });
}

// The same from a register of 64 bits, of which the source's type takes the lower ones.
template <typename D, typename S>
void integers_of_wide(Warp& w, const Instr& i, uint32_t lanes) {
  Slot<D>* d = slots<D>(w, i.op[0]);
  const uint64_t* s = w.u64(i.op[1]);
  for_lanes(lanes, [&](int l) { d[l] = to_slot<D>(static_cast<D>(static_cast<S>(s[l]))); });
}

template <typename Make>
Handler for_any_integer(const Decoder& d, Type t, Make make) {
  if (t == Type::kU8 || t == Type::kB8) return make(uint8_t{});
  if (t == Type::kS8) return make(int8_t{});
  return for_integer(d, t, make);
}

double read_float(Warp& w, Type t, uint32_t place, int l) {
  switch (t) {
    case Type::kF16:
      return f16_to_float(w.u32(place)[l] & 0xffff);
    case Type::kBF16:
      return bf16_to_float(w.u32(place)[l] & 0xffff);
    case Type::kF64:
      return std::bit_cast<double>(w.u64(place)[l]);
    default:
      return std::bit_cast<float>(w.u32(place)[l]);
  }
}

uint32_t write_float(Type t, double x, Round mode) {
  switch (t) {
    case Type::kF16:
      return to_f16(x, mode);
    case Type::kBF16:
      return to_bf16(x, mode);
    case Type::kTF32:
      return encode(x, 8, 10, mode) << 13;
    default:
      return std::bit_cast<uint32_t>(to_float(x, mode));
  }
}

enum : uint32_t { kFlush = 1, kSaturate = 2, kRelu = 4, kWhole = 8 };

double whole(double x, Round mode) {
  switch (mode) {
    case Round::kZero:
      return std::trunc(x);
    case Round::kDown:
      return std::floor(x);
    case Round::kUp:
      return std::ceil(x);
    default:
      return std::nearbyint(x);
  }
}

double modified(double x, uint32_t flags, Round mode) {
  if (flags & kFlush && std::fabs(x) < 0x1p-126) x = std::copysign(0., x);
  if (flags & kWhole) x = whole(x, mode);
  if (flags & kSaturate) x = x >= 1 ? 1 : x > 0 ? x : 0;
  if (flags & kRelu && !std::isnan(x)) x = std::max(x, 0.);
  return x;
}

// aux: destination type, source type, rounding, flags.
void floats(Warp& w, const Instr& i, uint32_t lanes) {
  const auto to = static_cast<Type>(i.aux[0]), from = static_cast<Type>(i.aux[1]);
  const auto mode = static_cast<Round>(i.aux[2]);
  for_lanes(lanes, [&](int l) {
    const double x = modified(read_float(w, from, i.op[1], l), i.aux[3], mode);
    if (to == Type::kF64) {
      w.u64(i.op[0])[l] = std::bit_cast<uint64_t>(x);
    } else {
      w.u32(i.op[0])[l] = write_float(to, x, mode);
    }
  });
}

// cvt.rn.bf16x2.f32 d, high, low
void pairs(Warp& w, const Instr& i, uint32_t lanes) {
  const Type to = static_cast<Type>(i.aux[0]) == Type::kF16x2 ? Type::kF16 : Type::kBF16;
  const auto mode = static_cast<Round>(i.aux[2]);
  for_lanes(lanes, [&](int l) {
    const double high = modified(read_float(w, Type::kF32, i.op[1], l), i.aux[3], mode);
    const double low = modified(read_float(w, Type::kF32, i.op[2], l), i.aux[3], mode);
    w.u32(i.op[0])[l] = write_float(to, high, mode) << 16 | write_float(to, low, mode);
  });
}

template <typename D>
D clamp_to(double x) {
  if (std::isnan(x)) return 0;
  if (x <= static_cast<double>(std::numeric_limits<D>::min())) return std::numeric_limits<D>::min();
  if (x >= static_cast<double>(std::numeric_limits<D>::max())) return std::numeric_limits<D>::max();
  return static_cast<D>(x);
}

template <typename D>
void to_integers(Warp& w, const Instr& i, uint32_t lanes) {
  const auto from = static_cast<Type>(i.aux[1]);
  const auto mode = static_cast<Round>(i.aux[2]);
  Slot<D>* d = slots<D>(w, i.op[0]);
  for_lanes(lanes, [&](int l) {
    const double x = modified(read_float(w, from, i.op[1], l), i.aux[3] & kFlush, mode);
    d[l] = to_slot<D>(clamp_to<D>(whole(x, mode)));
  });
}

template <typename S>
void from_integers(Warp& w, const Instr& i, uint32_t lanes) {
  const auto to = static_cast<Type>(i.aux[0]);
  const auto mode = static_cast<Round>(i.aux[2]);
  const Slot<S>* s = slots<S>(w, i.op[1]);
  for_lanes(lanes, [&](int l) {
    const S x = from_slot<S>(s[l]);
    if (to == Type::kF64) {
      w.u64(i.op[0])[l] = std::bit_cast<uint64_t>(static_cast<double>(x));
    } else if (to == Type::kF32) {
      w.u32(i.op[0])[l] = std::bit_cast<uint32_t>(to_float(x, mode));
    } else {
      w.u32(i.op[0])[l] = write_float(to, static_cast<double>(x), mode);
    }
  });
}

// The type of the register that holds a value of type t: cvt allows wider ones.
Type held(const Decoder& d, const Operand& o, Type t) {
  return d.wide(o) ? Type::kU64 : bits_of(t) == 64 ? t : Type::kU32;
}

void build_cvt(Decoder& d) {
  Round mode = Round::kNearest;
  uint32_t flags = 0;
  const std::map<std::string_view, std::pair<Round, bool>> roundings = {
      {"rn", {Round::kNearest, false}}, {"rz", {Round::kZero, false}},
      {"rm", {Round::kDown, false}},    {"rp", {Round::kUp, false}},
      {"rna", {Round::kAway, false}},   {"rni", {Round::kNearest, true}},
      {"rzi", {Round::kZero, true}},    {"rmi", {Round::kDown, true}},
      {"rpi", {Round::kUp, true}}};
  for (const auto& [name, r] : roundings) {
    if (d.take(name)) {
      mode = r.first;
      if (r.second) flags |= kWhole;
      break;
    }
  }
  if (d.take("relu")) flags |= kRelu;
  if (d.take("ftz")) flags |= kFlush;
  if (d.take("sat")) flags |= kSaturate;
  const Type to = d.type(), from = d.type();
  d.in.aux[0] = static_cast<uint32_t>(to);
  d.in.aux[1] = static_cast<uint32_t>(from);
  d.in.aux[2] = static_cast<uint32_t>(mode);
  if (to == Type::kBF16x2 || to == Type::kF16x2) {
    if (from != Type::kF32) d.unknown("its types");
    d.dst(0, to);
    d.src(1, from);
    d.src(2, from);
    d.in.aux[3] = flags;
    return d.emit(&pairs);
  }
  if (!is_float(to) && !is_float(from)) {
    if (flags & ~kWhole) d.unknown("saturation of integers");
    // The value is cut to the type, then extended to the register.
    const Type register_type = held(d, d.operand(0), to);
    const bool extend = bits_of(register_type) == 64 && bits_of(to) < 64;
    if (extend) d.unknown("a destination wider than its type");
    d.dst(0, register_type);
    d.src(1, held(d, d.operand(1), from));
    const bool narrow = d.wide(d.operand(1)) && bits_of(from) < 64;
    return d.emit(for_any_integer(d, to, [&](auto t) {
      using D = decltype(t);
      return for_any_integer(d, from, [&](auto s) -> Handler {
        using S = decltype(s);
        return narrow ? &integers_of_wide<D, S> : &integers<D, S>;
      });
    }));
  }
  d.in.aux[3] = flags;
  if (is_float(to) && is_float(from)) {
    d.dst(0, to);
    d.src(1, from);
    return d.emit(&floats);
  }
  if (is_float(to)) {
    d.dst(0, to);
    d.src(1, held(d, d.operand(1), from));
    return d.emit(
        for_any_integer(d, from, [](auto s) -> Handler { return &from_integers<decltype(s)>; }));
  }
  d.dst(0, held(d, d.operand(0), to));
  d.src(1, from);
  d.emit(for_any_integer(d, to, [](auto t) -> Handler { return &to_integers<decltype(t)>; }));
}

void shift_address(Warp& w, const Instr& i, uint32_t lanes) {
  const auto by = static_cast<uint64_t>(i.imm);
  if (i.n == 4) {
    for_lanes(lanes, [&](int l) { w.u32(i.op[0])[l] = w.u32(i.op[1])[l]; });
    return;
  }
  for_lanes(lanes, [&](int l) { w.u64(i.op[0])[l] = w.u64(i.op[1])[l] + by; });
}

void build_cvta(Decoder& d) {
  const bool to = d.take("to");
  const std::string space = d.next();
  const Type t = d.type();
  uint64_t window = 0;
  if (space == "shared") {
    window = kSharedWindow;
  } else if (space == "param") {
    window = kParamWindow;
  } else if (space == "local") {
    window = kLocalWindow;
  } else if (space != "global" && space != "const") {
    d.unknown();
  }
  d.dst(0, t);
  d.src(1, t);
  d.in.n = bits_of(t) / 8;
  d.in.imm = static_cast<int64_t>(to ? 0 - window : window);
  if (bits_of(t) == 32 && window != 0) d.unknown("32-bit generic addresses");
  d.emit(&shift_address);
}

}  // namespace

void add_convert_ops(Builders& b) {
  b["cvt"] = &build_cvt;
  b["cvta"] = &build_cvta;
}

}  // namespace deltad::ptx
