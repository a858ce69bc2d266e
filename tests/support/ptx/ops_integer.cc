// Integer arithmetic, bits and logic.
#include <algorithm>
#include <tuple>

#include "tests/support/ptx/functors.h"
#include "tests/support/ptx/lanes.h"

namespace deltad::ptx {
namespace {

template <typename T>
using Double = std::conditional_t<
    sizeof(T) == 2, std::conditional_t<std::is_signed_v<T>, int32_t, uint32_t>,
    std::conditional_t<sizeof(T) == 4, std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>,
                       std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>>>;
template <typename T>
using Unsigned = std::make_unsigned_t<T>;

struct Sub {
  template <typename T>
  T operator()(T a, T b) const {
    return static_cast<T>(Unsigned<T>(a) - Unsigned<T>(b));
  }
};
struct Low {
  template <typename T>
  T operator()(T a, T b) const {
    return static_cast<T>(uint64_t(a) * uint64_t(b));
  }
  template <typename T>
  T operator()(T a, T b, T c) const {
    return static_cast<T>(uint64_t(a) * uint64_t(b) + uint64_t(c));
  }
};
struct High {
  template <typename T>
  T operator()(T a, T b) const {
    return static_cast<T>((Double<T>(a) * Double<T>(b)) >> (8 * sizeof(T)));
  }
  template <typename T>
  T operator()(T a, T b, T c) const {
    return Add()((*this)(a, b), c);
  }
};
struct Wide {
  template <typename T>
  Double<T> operator()(T a, T b) const {
    return Double<T>(a) * Double<T>(b);
  }
  template <typename T>
  Double<T> operator()(T a, T b, Double<T> c) const {
    return Add()((*this)(a, b), c);
  }
};
// The GPU's results where C++ has none.
struct Div {
  template <typename T>
  T operator()(T a, T b) const {
    if (b == 0) return static_cast<T>(-1);
    if constexpr (std::is_signed_v<T>) {
      if (b == -1) return Sub()(T{0}, a);
    }
    return static_cast<T>(a / b);
  }
};
struct Rem {
  template <typename T>
  T operator()(T a, T b) const {
    if (b == 0) return a;
    if constexpr (std::is_signed_v<T>) {
      if (b == -1) return 0;
    }
    return static_cast<T>(a % b);
  }
};
struct Neg {
  template <typename T>
  T operator()(T a) const {
    return Sub()(T{0}, a);
  }
};
struct Abs {
  template <typename T>
  T operator()(T a) const {
    return a < T{0} ? Sub()(T{0}, a) : a;
  }
};
struct Not {
  template <typename T>
  T operator()(T a) const {
    return static_cast<T>(~a);
  }
};
struct Shl {
  template <typename T>
  T operator()(T a, uint32_t n) const {
    return n >= 8 * sizeof(T) ? T{0} : static_cast<T>(Unsigned<T>(a) << n);
  }
};
struct Shr {
  template <typename T>
  T operator()(T a, uint32_t n) const {
    const uint32_t bits = 8 * sizeof(T);
    if (n >= bits) return std::is_signed_v<T> ? static_cast<T>(a >> (bits - 1)) : T{0};
    return static_cast<T>(a >> n);
  }
};
struct Popc {
  template <typename T>
  uint32_t operator()(T a) const {
    return static_cast<uint32_t>(std::popcount(a));
  }
};
struct Clz {
  template <typename T>
  uint32_t operator()(T a) const {
    return static_cast<uint32_t>(std::countl_zero(a));
  }
};
struct Brev {
  template <typename T>
  T operator()(T a) const {
    T r = 0;
    for (size_t i = 0; i < 8 * sizeof(T); ++i) r |= (a >> i & 1) << (8 * sizeof(T) - 1 - i);
    return r;
  }
};
// The highest bit that differs from the sign; -1 if there is none.
struct Find {
  template <typename T>
  uint32_t operator()(T a) const {
    auto u = static_cast<Unsigned<T>>(a);
    if (std::is_signed_v<T> && a < T{0}) u = static_cast<Unsigned<T>>(~u);
    return u == 0 ? ~0U : static_cast<uint32_t>(8 * sizeof(T) - 1) - Clz()(u);
  }
};
struct FindShift {
  template <typename T>
  uint32_t operator()(T a) const {
    const uint32_t at = Find()(a);
    return at == ~0U ? at : static_cast<uint32_t>(8 * sizeof(T) - 1) - at;
  }
};
struct Extract {
  template <typename T>
  T operator()(T a, uint32_t from, uint32_t count) const {
    constexpr uint32_t kBits = 8 * sizeof(T);
    from &= 255, count &= 255;
    const auto u = static_cast<Unsigned<T>>(a);
    const uint32_t last = std::min(from + count - 1, kBits - 1);
    const bool sign = std::is_signed_v<T> && count > 0 && (u >> last & 1);
    Unsigned<T> r = from >= kBits ? 0 : u >> from;
    if (count < kBits) r &= (Unsigned<T>{1} << count) - 1;
    const uint32_t filled = from >= kBits ? 0 : std::min(count, kBits - from);
    if (sign && filled < kBits) r |= ~Unsigned<T>{0} << filled;
    return static_cast<T>(r);
  }
};
struct Insert {
  template <typename T>
  T operator()(T a, T b, uint32_t at, uint32_t count) const {
    constexpr uint32_t kBits = 8 * sizeof(T);
    at &= 255, count &= 255;
    if (at >= kBits) return b;
    const T ones = count >= kBits ? ~T{0} : (T{1} << count) - 1;
    return (b & ~(ones << at)) | ((a & ones) << at);
  }
};
struct Lop3 {
  uint32_t operator()(uint32_t a, uint32_t b, uint32_t c, uint32_t table) const {
    uint32_t r = 0;
    for (uint32_t i = 0; i < 8; ++i) {
      if (table >> i & 1) r |= (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
    }
    return r;
  }
};
struct Prmt {
  uint32_t operator()(uint32_t a, uint32_t b, uint32_t selector) const {
    const uint64_t bytes = uint64_t{b} << 32 | a;
    uint32_t r = 0;
    for (int i = 0; i < 4; ++i) {
      const uint32_t s = selector >> (4 * i);
      uint32_t byte = static_cast<uint32_t>(bytes >> (8 * (s & 7))) & 255;
      if (s & 8) byte = byte & 128 ? 255 : 0;
      r |= byte << (8 * i);
    }
    return r;
  }
};
template <bool kLeft, bool kWrap>
struct Funnel {
  uint32_t operator()(uint32_t a, uint32_t b, uint32_t n) const {
    n = kWrap ? n & 31 : std::min(n, 32U);
    const uint64_t both = uint64_t{b} << 32 | a;
    return static_cast<uint32_t>(kLeft ? (both << n) >> 32 : both >> n);
  }
};
template <bool kA, bool kB>  // signed?
struct Dot4 {
  int32_t operator()(uint32_t a, uint32_t b, uint32_t c) const {
    uint32_t sum = c;
    for (int i = 0; i < 4; ++i) {
      const uint32_t x = a >> (8 * i) & 255, y = b >> (8 * i) & 255;
      sum +=
          (kA ? static_cast<uint32_t>(int8_t(x)) : x) * (kB ? static_cast<uint32_t>(int8_t(y)) : y);
    }
    return static_cast<int32_t>(sum);
  }
};

// op.type d, a, …: `n` sources of the same type.
template <typename F, int kSources>
Handler same(const Decoder& d, Type t) {
  return for_integer(d, t, [](auto zero) -> Handler {
    using T = decltype(zero);
    if constexpr (kSources == 1) return &map<F, T, T>;
    if constexpr (kSources == 2) return &map<F, T, T, T>;
    if constexpr (kSources == 3) return &map<F, T, T, T, T>;
  });
}

void operands(Decoder& d, Type t, size_t sources) {
  d.dst(0, t);
  for (size_t i = 1; i <= sources; ++i) d.src(i, t);
}

template <typename F, int kSources>
void build_same(Decoder& d) {
  const Type t = d.type();
  operands(d, t, kSources);
  d.emit(same<F, kSources>(d, t));
}

template <typename F>
void predicates(Warp& w, const Instr& i, uint32_t lanes) {
  uint32_t r = 0;
  if constexpr (std::is_same_v<F, Not>) {
    r = ~w.predicate(i.op[1]);
  } else {
    r = F()(w.predicate(i.op[1]), w.predicate(i.op[2]));
  }
  w.set_predicate(i.op[0], lanes, r);
}

template <typename F, int kSources>
void build_logic(Decoder& d) {
  const Type t = d.type();
  operands(d, t, kSources);
  d.emit(t == Type::kPred ? &predicates<F> : same<F, kSources>(d, t));
}

template <typename F>
void build_shift(Decoder& d) {
  const Type t = d.type();
  d.dst(0, t);
  d.src(1, t);
  d.src(2, Type::kU32);
  d.emit(for_integer(d, t, [](auto zero) -> Handler {
    using T = decltype(zero);
    return &map<F, T, T, uint32_t>;
  }));
}

Type doubled(const Decoder& d, Type t) {
  switch (t) {
    case Type::kU16:
      return Type::kU32;
    case Type::kS16:
      return Type::kS32;
    case Type::kU32:
      return Type::kU64;
    case Type::kS32:
      return Type::kS64;
    default:
      d.unknown("its type");
  }
}

template <int kSources>
void build_multiply(Decoder& d) {
  const std::string part = d.next();
  const Type t = d.type();
  if (part == "wide") {
    const Type r = doubled(d, t);
    d.dst(0, r);
    d.src(1, t);
    d.src(2, t);
    if (kSources == 3) d.src(3, r);
    d.emit(for_integer(d, t, [](auto zero) -> Handler {
      using T = decltype(zero);
      if constexpr (sizeof(T) == 8)
        return nullptr;
      else if constexpr (kSources == 3)
        return &map<Wide, Double<T>, T, T, Double<T>>;
      else
        return &map<Wide, Double<T>, T, T>;
    }));
    return;
  }
  operands(d, t, kSources);
  if (part == "lo") return d.emit(same<Low, kSources>(d, t));
  if (part == "hi") return d.emit(same<High, kSources>(d, t));
  d.unknown();
}

// popc, clz, bfind: a count.
template <typename F>
void build_count(Decoder& d) {
  const Type t = d.type();
  d.dst(0, Type::kU32);
  d.src(1, t);
  d.emit(for_integer(d, t, [](auto zero) -> Handler {
    using T = decltype(zero);
    using U = std::conditional_t<std::is_same_v<F, Popc> || std::is_same_v<F, Clz>, Unsigned<T>, T>;
    return &map<F, uint32_t, U>;
  }));
}

void build_find(Decoder& d) {
  d.take("shiftamt") ? build_count<FindShift>(d) : build_count<Find>(d);
}

void build_extract(Decoder& d) {
  const Type t = d.type();
  d.dst(0, t);
  d.src(1, t);
  d.src(2, Type::kU32);
  d.src(3, Type::kU32);
  d.emit(for_integer(d, t, [](auto zero) -> Handler {
    using T = decltype(zero);
    return &map<Extract, T, T, uint32_t, uint32_t>;
  }));
}

void build_insert(Decoder& d) {
  const Type t = d.type();
  d.dst(0, t);
  d.src(1, t);
  d.src(2, t);
  d.src(3, Type::kU32);
  d.src(4, Type::kU32);
  if (t == Type::kB32)
    return d.emit(&map<Insert, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t>);
  if (t == Type::kB64)
    return d.emit(&map<Insert, uint64_t, uint64_t, uint64_t, uint32_t, uint32_t>);
  d.unknown("its type");
}

template <typename F, int kSources>
void build_words(Decoder& d) {  // .b32 only
  if (d.type() != Type::kB32) d.unknown("its type");
  operands(d, Type::kB32, kSources);
  if constexpr (kSources == 4) {
    d.emit(&map<F, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t>);
  } else {
    d.emit(&map<F, uint32_t, uint32_t, uint32_t, uint32_t>);
  }
}

void build_funnel(Decoder& d) {
  const bool left = d.take("l");
  if (!left && !d.take("r")) d.unknown();
  const bool wrap = d.take("wrap");
  if (!wrap && !d.take("clamp")) d.unknown();
  if (left)
    return wrap ? build_words<Funnel<true, true>, 3>(d) : build_words<Funnel<true, false>, 3>(d);
  return wrap ? build_words<Funnel<false, true>, 3>(d) : build_words<Funnel<false, false>, 3>(d);
}

void build_dot4(Decoder& d) {
  const Type a = d.type(), b = d.type();
  operands(d, Type::kB32, 3);
  auto chosen = [&]<bool kA, bool kB>() {
    d.emit(&map<Dot4<kA, kB>, int32_t, uint32_t, uint32_t, uint32_t>);
  };
  const bool sa = a == Type::kS32, sb = b == Type::kS32;
  if (sa) return sb ? chosen.operator()<true, true>() : chosen.operator()<true, false>();
  return sb ? chosen.operator()<false, true>() : chosen.operator()<false, false>();
}

}  // namespace

void add_integer_add(Builders&);

// add, sub, min, max, neg, abs, mul and mad of integers; floats have the same opcodes
// (ops_float.cc).
void build_integer(Decoder& d, const std::string& opcode) {
  if (opcode == "add") return build_same<Add, 2>(d);
  if (opcode == "sub") return build_same<Sub, 2>(d);
  if (opcode == "min") return build_same<Min, 2>(d);
  if (opcode == "max") return build_same<Max, 2>(d);
  if (opcode == "neg") return build_same<Neg, 1>(d);
  if (opcode == "abs") return build_same<Abs, 1>(d);
  if (opcode == "mul") return build_multiply<2>(d);
  if (opcode == "mad") return build_multiply<3>(d);
  if (opcode == "div") return build_same<Div, 2>(d);
  d.unknown();
}

void add_integer_ops(Builders& b) {
  b["rem"] = &build_same<Rem, 2>;
  b["and"] = &build_logic<And, 2>;
  b["or"] = &build_logic<Or, 2>;
  b["xor"] = &build_logic<Xor, 2>;
  b["not"] = &build_logic<Not, 1>;
  b["shl"] = &build_shift<Shl>;
  b["shr"] = &build_shift<Shr>;
  b["popc"] = &build_count<Popc>;
  b["clz"] = &build_count<Clz>;
  b["bfind"] = &build_find;
  b["brev"] = [](Decoder& d) {
    const Type t = d.type();
    operands(d, t, 1);
    d.emit(t == Type::kB64 ? &map<Brev, uint64_t, uint64_t> : &map<Brev, uint32_t, uint32_t>);
  };
  b["bfe"] = &build_extract;
  b["bfi"] = &build_insert;
  b["lop3"] = &build_words<Lop3, 4>;
  b["prmt"] = &build_words<Prmt, 3>;
  b["shf"] = &build_funnel;
  b["dp4a"] = &build_dot4;
}

}  // namespace deltad::ptx
