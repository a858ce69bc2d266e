// atom and red: read, change, write, one lane after the other.
#include <algorithm>

#include "tests/support/ptx/lanes.h"
#include "tests/support/ptx/minifloat.h"

namespace deltad::ptx {
namespace {

enum class Change : uint32_t { kAdd, kMin, kMax, kAnd, kOr, kXor, kExch, kCas, kInc, kDec };

template <typename T>
T changed(Change c, T old, T b, T swap) {
  using U = std::make_unsigned_t<T>;
  switch (c) {
    case Change::kAdd:
      return static_cast<T>(static_cast<U>(old) + static_cast<U>(b));
    case Change::kMin:
      return std::min(old, b);
    case Change::kMax:
      return std::max(old, b);
    case Change::kAnd:
      return old & b;
    case Change::kOr:
      return old | b;
    case Change::kXor:
      return old ^ b;
    case Change::kExch:
      return b;
    case Change::kCas:
      return old == b ? swap : old;
    case Change::kInc:
      return old >= b ? T{0} : static_cast<T>(old + 1);
    case Change::kDec:
      return old == 0 || old > b ? b : static_cast<T>(old - 1);
  }
  return old;
}

struct PairF16 {
  static uint32_t add(uint32_t a, uint32_t b) {
    return to_f16(double{f16_to_float(a)} + double{f16_to_float(b)});
  }
};
struct PairBF16 {
  static uint32_t add(uint32_t a, uint32_t b) {
    return to_bf16(fma_round_to_odd(bf16_to_float(a), 1, bf16_to_float(b)));
  }
};

template <typename T, typename F>
void update(Warp& w, const Instr& i, uint32_t lanes, F f) {
  for_lanes(lanes, [&](int l) {
    uint64_t a = address_of(w, i, 0, l);
    if (a % sizeof(T) != 0) w.fault(i, "misaligned address", l);
    bool shared = i.aux[1] != 0;  // of the cluster, too, if it may be (Instr::beyond)
    if (a >= kSharedWindow) {
      shared = true;
      a -= kSharedWindow;
    }
    // Atomics do not race with each other: for the detector they only read.
    if (shared) shared_read(w, i, a, sizeof(T), l);
    uint8_t* p =
        shared ? shared_at(w, i, a, sizeof(T), l) : global_for_write(w, i, a, sizeof(T), l);
    T old;
    std::memcpy(&old, p, sizeof old);
    const T now = f(old, l);
    std::memcpy(p, &now, sizeof now);
    slots<T>(w, i.op[0])[l] = to_slot<T>(old);
  });
}

template <typename T>
void integer(Warp& w, const Instr& i, uint32_t lanes) {
  update<T>(w, i, lanes, [&](T old, int l) {
    return changed<T>(static_cast<Change>(i.aux[0]), old, from_slot<T>(slots<T>(w, i.op[1])[l]),
                      from_slot<T>(slots<T>(w, i.op[2])[l]));
  });
}

template <typename T>
void add_float(Warp& w, const Instr& i, uint32_t lanes) {
  update<T>(w, i, lanes, [&](T old, int l) { return old + from_slot<T>(slots<T>(w, i.op[1])[l]); });
}

template <typename P, bool kPair>
void add_half(Warp& w, const Instr& i, uint32_t lanes) {
  using T = std::conditional_t<kPair, uint32_t, uint16_t>;
  update<T>(w, i, lanes, [&](T old, int l) {
    const uint32_t b = w.u32(i.op[1])[l];
    uint32_t r = P::add(old & 0xffff, b & 0xffff);
    if (kPair) r |= P::add(uint32_t{old} >> 16, b >> 16) << 16;
    return static_cast<T>(r);
  });
}

void build(Decoder& d, bool returns) {
  for (bool more = true; more;) {
    more = false;
    for (const char* m :
         {"relaxed", "acquire", "release", "acq_rel", "cta", "cluster", "gpu", "sys", "global"})
      more |= d.take(m);
    if (d.take("shared") || d.take("shared::cta")) d.in.aux[1] = 1, more = true;
    if (d.take("shared::cluster")) d.in.aux[1] = 1, more = d.in.beyond = true;
  }
  static const std::map<std::string, Change> changes = {
      {"add", Change::kAdd}, {"min", Change::kMin}, {"max", Change::kMax},   {"and", Change::kAnd},
      {"or", Change::kOr},   {"xor", Change::kXor}, {"exch", Change::kExch}, {"cas", Change::kCas},
      {"inc", Change::kInc}, {"dec", Change::kDec}};
  d.in.beyond |= d.in.aux[1] == 0;  // a generic address
  const auto change = changes.find(d.next());
  if (change == changes.end()) d.unknown();
  d.in.aux[0] = static_cast<uint32_t>(change->second);
  d.take("noftz");
  const Type t = d.type();
  const size_t first = returns ? 1 : 0;
  d.dst(returns ? d.operand(0) : Operand(), t);
  d.address(first);
  d.src(first + 1, t);
  d.src(change->second == Change::kCas ? first + 2 : first + 1, t);
  if (!is_float(t)) {
    return d.emit(for_integer(d, t, [](auto zero) -> Handler { return &integer<decltype(zero)>; }));
  }
  if (change->second != Change::kAdd) d.unknown();
  switch (t) {
    case Type::kF32:
      return d.emit(&add_float<float>);
    case Type::kF64:
      return d.emit(&add_float<double>);
    case Type::kF16:
      return d.emit(&add_half<PairF16, false>);
    case Type::kF16x2:
      return d.emit(&add_half<PairF16, true>);
    case Type::kBF16:
      return d.emit(&add_half<PairBF16, false>);
    case Type::kBF16x2:
      return d.emit(&add_half<PairBF16, true>);
    default:
      d.unknown("its type");
  }
}

}  // namespace

void add_atomic_ops(Builders& b) {
  b["atom"] = [](Decoder& d) { build(d, true); };
  b["red"] = [](Decoder& d) { build(d, false); };
}

}  // namespace deltad::ptx
