// Arithmetic of f32 and f64. The opcodes that integers and halves share are told apart here by
// type.
#include <cmath>
#include <tuple>

#include "tests/support/ptx/lanes.h"
#include "tests/support/ptx/minifloat.h"

namespace deltad::ptx {

void build_integer(Decoder& d, const std::string& opcode);  // ops_integer.cc
void build_half(Decoder& d, const std::string& opcode);     // ops_half.cc

namespace {

template <bool kFlush, typename T>
T flushed(T x) {
  if constexpr (kFlush) return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(T{0}, x) : x;
  return x;
}

// F with subnormals flushed to zero, and the result clamped to [0, 1], where the modifiers say so.
template <typename F, bool kFlush, bool kSaturate>
struct Modified {
  template <typename... T>
  auto operator()(T... s) const {
    auto r = flushed<kFlush>(F()(flushed<kFlush>(s)...));
    if constexpr (kSaturate) r = r >= 1 ? 1 : r > 0 ? r : 0;  // NaN becomes 0
    return r;
  }
};

struct Add {
  template <typename T>
  T operator()(T a, T b) const {
    return a + b;
  }
};
struct Sub {
  template <typename T>
  T operator()(T a, T b) const {
    return a - b;
  }
};
struct Mul {
  template <typename T>
  T operator()(T a, T b) const {
    return a * b;
  }
};
struct Fma {
  template <typename T>
  T operator()(T a, T b, T c) const {
    return std::fma(a, b, c);
  }
};
struct Div {
  template <typename T>
  T operator()(T a, T b) const {
    return a / b;
  }
};
struct Neg {
  template <typename T>
  T operator()(T a) const {
    return -a;
  }
};
struct Abs {
  template <typename T>
  T operator()(T a) const {
    return std::fabs(a);
  }
};
struct Min {
  template <typename T>
  T operator()(T a, T b) const {
    return a == b ? (std::signbit(a) ? a : b) : std::fmin(a, b);
  }
};
struct Max {
  template <typename T>
  T operator()(T a, T b) const {
    return a == b ? (std::signbit(a) ? b : a) : std::fmax(a, b);
  }
};
template <typename F>
struct KeepNan {
  template <typename T>
  T operator()(T a, T b) const {
    return std::isnan(a) || std::isnan(b) ? std::numeric_limits<T>::quiet_NaN() : F()(a, b);
  }
};
struct Sqrt {
  template <typename T>
  T operator()(T a) const {
    return std::sqrt(a);
  }
};
struct Rcp {
  template <typename T>
  T operator()(T a) const {
    return T{1} / a;
  }
};
struct CopySign {
  template <typename T>
  T operator()(T a, T b) const {
    return std::copysign(b, a);
  }
};

// An approximate function's result: as far from the true one as PTX's documentation allows, in a
// direction that depends on the operand alone. So a test's tolerance must have room for the real
// error. Exact where the hardware is: zeros, infinities, NaN, and integers' powers of two.
float approximate(double exact, float operand, double relative, double absolute = 0) {
  const auto f = static_cast<float>(exact);
  if (f == 0 || !std::isfinite(f) || f == 1) return f;
  const uint32_t hash = std::bit_cast<uint32_t>(operand) * 0x9e3779b1U;
  const double direction = (hash >> 31 ? 1 : -1) * static_cast<double>(hash >> 8 & 255) / 255;
  // Rounding to float is part of the documented bound.
  const double room = std::fabs(exact) * std::max(0., relative - 0x1p-24) + absolute;
  return static_cast<float>(exact + direction * room);
}
// Bounds: PTX ISA 9.0, "Floating Point Instructions". ulps of the result, as relative errors.
struct Ex2Approx {
  float operator()(float a) const { return approximate(std::exp2(double{a}), a, 2 * 0x1p-23); }
};
struct Lg2Approx {  // 2^-22 absolute in (0.5, 2), else 2^-22 relative
  float operator()(float a) const {
    const bool near_one = a > 0.5F && a < 2;
    return approximate(std::log2(double{a}), a, near_one ? 0 : 0x1p-22, near_one ? 0x1p-22 : 0);
  }
};
struct RcpApprox {
  float operator()(float a) const { return approximate(1 / double{a}, a, 0x1p-23); }
};
struct RsqrtApprox {
  float operator()(float a) const {
    return approximate(1 / std::sqrt(double{a}), a, 1.08 * 0x1p-23);
  }
};
struct SqrtApprox {
  float operator()(float a) const { return approximate(std::sqrt(double{a}), a, 0x1p-23); }
};
struct DivApprox {
  float operator()(float a, float b) const {
    return approximate(double{a} / double{b}, a, 2 * 0x1p-23);
  }
};
struct SinApprox {
  float operator()(float a) const { return approximate(std::sin(double{a}), a, 0, 0.71 * 0x1p-20); }
};
struct CosApprox {
  float operator()(float a) const { return approximate(std::cos(double{a}), a, 0, 0.71 * 0x1p-20); }
};
struct TanhApprox {
  float operator()(float a) const { return approximate(std::tanh(double{a}), a, 0x1p-11); }
};

template <typename F, typename T, bool kFlush, bool kSaturate, int kSources>
Handler handler() {
  using G = Modified<F, kFlush, kSaturate>;
  if constexpr (kSources == 1) return &map<G, T, T>;
  if constexpr (kSources == 2) return &map<G, T, T, T>;
  if constexpr (kSources == 3) return &map<G, T, T, T, T>;
}

// op[.rn][.ftz][.sat].f32 or .f64
template <typename F, int kSources>
void build(Decoder& d) {
  const bool flush = d.take("ftz"), saturate = d.take("sat");
  const Type t = d.type();
  if (!is_float(t)) d.unknown("its type");
  d.dst(0, t);
  for (size_t i = 1; i <= kSources; ++i) d.src(i, t);
  if (t == Type::kF64 && !flush && !saturate)
    return d.emit(handler<F, double, false, false, kSources>());
  if (t != Type::kF32) d.unknown("its type");
  if (flush)
    return d.emit(saturate ? handler<F, float, true, true, kSources>()
                           : handler<F, float, true, false, kSources>());
  d.emit(saturate ? handler<F, float, false, true, kSources>()
                  : handler<F, float, false, false, kSources>());
}

template <typename F, int kSources>
void build_single(Decoder& d) {  // f32 only
  const bool flush = d.take("ftz");
  if (d.type() != Type::kF32) d.unknown("its type");
  d.dst(0, Type::kF32);
  for (size_t i = 1; i <= kSources; ++i) d.src(i, Type::kF32);
  d.emit(flush ? handler<F, float, true, false, kSources>()
               : handler<F, float, false, false, kSources>());
}

template <typename F>
void build_minmax(Decoder& d) {
  const bool flush = d.take("ftz"), keep = d.take("NaN");
  const Type t = d.type();
  d.dst(0, t);
  d.src(1, t);
  d.src(2, t);
  if (t == Type::kF64 && !flush && !keep) return d.emit(handler<F, double, false, false, 2>());
  if (t != Type::kF32) d.unknown("its type");
  if (keep)
    return d.emit(flush ? handler<KeepNan<F>, float, true, false, 2>()
                        : handler<KeepNan<F>, float, false, false, 2>());
  d.emit(flush ? handler<F, float, true, false, 2>() : handler<F, float, false, false, 2>());
}

// Rounded down, up or to zero: exact but for the last bit in double, then to float.
template <Round kMode, bool kFlush>
struct Directed {
  float operator()(float a, float b, float c) const {
    const double r = fma_round_to_odd(flushed<kFlush>(a), flushed<kFlush>(b), flushed<kFlush>(c));
    return flushed<kFlush>(to_float(r, kMode));
  }
};

template <Round kMode>
void build_directed(Decoder& d, const std::string& opcode) {
  const bool flush = d.take("ftz");
  if (d.type() != Type::kF32) d.unknown("its type");
  constexpr uint64_t kOne = 0x3f800000, kMinusZero = 0x80000000;
  d.dst(0, Type::kF32);
  d.src(1, Type::kF32);
  if (opcode == "add") d.constant(kOne, Type::kF32);
  d.src(2, Type::kF32);
  if (opcode == "mul") d.constant(kMinusZero, Type::kF32);
  if (opcode == "fma") d.src(3, Type::kF32);
  if (opcode != "add" && opcode != "mul" && opcode != "fma") d.unknown("its rounding");
  d.emit(flush ? &map<Directed<kMode, true>, float, float, float, float>
               : &map<Directed<kMode, false>, float, float, float, float>);
}

template <const char* kOpcode, typename F, int kSources>
void shared(Decoder& d) {
  const Type t = d.last_type();
  if (!is_float(t)) return build_integer(d, kOpcode);
  if (t != Type::kF32 && t != Type::kF64) return build_half(d, kOpcode);
  if constexpr (std::is_same_v<F, Min> || std::is_same_v<F, Max>) return build_minmax<F>(d);
  if (d.take("rm")) return build_directed<Round::kDown>(d, kOpcode);
  if (d.take("rp")) return build_directed<Round::kUp>(d, kOpcode);
  if (d.take("rz")) return build_directed<Round::kZero>(d, kOpcode);
  d.take("rn");  // the default
  build<F, kSources>(d);
}

template <typename Exact, typename Approximate>
void either(Decoder& d) {
  if (d.take("rn")) return build<Exact, 1>(d);
  if (d.take("approx")) return build_single<Approximate, 1>(d);
  d.unknown();
}

template <typename F>
void approximate_only(Decoder& d) {
  if (d.last_type() != Type::kF32) d.unknown("its type");
  if (!d.take("approx")) d.unknown();
  build_single<F, 1>(d);
}

constexpr char kAdd[] = "add", kSub[] = "sub", kMul[] = "mul", kMad[] = "mad", kMin[] = "min",
               kMax[] = "max", kNeg[] = "neg", kAbs[] = "abs", kFma[] = "fma";

}  // namespace

void add_float_ops(Builders& b) {
  b[kAdd] = &shared<kAdd, Add, 2>;
  b[kSub] = &shared<kSub, Sub, 2>;
  b[kMul] = &shared<kMul, Mul, 2>;
  b[kMad] = &shared<kMad, Fma, 3>;
  b[kFma] = &shared<kFma, Fma, 3>;
  b[kMin] = &shared<kMin, Min, 2>;
  b[kMax] = &shared<kMax, Max, 2>;
  b[kNeg] = &shared<kNeg, Neg, 1>;
  b[kAbs] = &shared<kAbs, Abs, 1>;
  b["div"] = [](Decoder& d) {
    if (!is_float(d.last_type())) return build_integer(d, "div");
    if (d.take("rn")) return build<Div, 2>(d);
    if (d.take("approx") || d.take("full")) return build_single<DivApprox, 2>(d);
    d.unknown();
  };
  b["rcp"] = &either<Rcp, RcpApprox>;
  b["sqrt"] = &either<Sqrt, SqrtApprox>;
  b["rsqrt"] = &approximate_only<RsqrtApprox>;
  b["ex2"] = &approximate_only<Ex2Approx>;
  b["lg2"] = &approximate_only<Lg2Approx>;
  b["sin"] = &approximate_only<SinApprox>;
  b["cos"] = &approximate_only<CosApprox>;
  b["tanh"] = &approximate_only<TanhApprox>;
  b["copysign"] = [](Decoder& d) {
    const Type t = d.type();
    d.dst(0, t);
    d.src(1, t);
    d.src(2, t);
    d.emit(t == Type::kF64 ? &map<CopySign, double, double, double>
                           : &map<CopySign, float, float, float>);
  };
}

}  // namespace deltad::ptx
