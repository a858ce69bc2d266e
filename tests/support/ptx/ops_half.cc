// Arithmetic of f16 and bf16, single and in pairs: exact in double, rounded once.
#include "tests/support/ptx/lanes.h"
#include "tests/support/ptx/minifloat.h"

namespace deltad::ptx {
namespace {

struct F16 {
  static double get(uint32_t bits) { return f16_to_float(bits); }
  static uint32_t put(double x) { return to_f16(x); }
};
struct BF16 {
  static double get(uint32_t bits) { return bf16_to_float(bits); }
  static uint32_t put(double x) { return to_bf16(x); }
};

using Function = double (*)(double, double, double);
double add(double a, double b, double) { return fma_round_to_odd(a, 1, b); }
double sub(double a, double b, double) { return fma_round_to_odd(a, 1, -b); }
double mul(double a, double b, double) { return a * b; }
double fma(double a, double b, double c) { return fma_round_to_odd(a, b, c); }
double least(double a, double b, double) {
  return a == b ? (std::signbit(a) ? a : b) : std::fmin(a, b);
}
double most(double a, double b, double) {
  return a == b ? (std::signbit(a) ? b : a) : std::fmax(a, b);
}
double least_nan(double a, double b, double) {
  return std::isnan(a) || std::isnan(b) ? NAN : least(a, b, 0);
}
double most_nan(double a, double b, double) {
  return std::isnan(a) || std::isnan(b) ? NAN : most(a, b, 0);
}
double exp2_of(double a, double, double) {
  return std::exp2(a);
}  // .approx: within 2^-9.9 (f16), 2^-7 (bf16)
double tanh_of(double a, double, double) {
  return std::tanh(a);
}  // .approx: within 2^-10.987 (f16), 2^-8 (bf16)

template <typename Format, Function kF, int kSources, bool kPair, bool kRelu>
void run(Warp& w, const Instr& i, uint32_t lanes) {
  uint32_t* d = w.u32(i.op[0]);
  const uint32_t* s[3] = {w.u32(i.op[1]), w.u32(i.op[kSources > 1 ? 2 : 1]),
                          w.u32(i.op[kSources > 2 ? 3 : 1])};
  for_lanes(lanes, [&](int l) {
    uint32_t r = 0;
    for (int h = 0; h <= kPair; ++h) {
      double x =
          kF(Format::get(s[0][l] >> (16 * h) & 0xffff), Format::get(s[1][l] >> (16 * h) & 0xffff),
             Format::get(s[2][l] >> (16 * h) & 0xffff));
      if (kRelu && !(x > 0) && !std::isnan(x)) x = 0;
      r |= Format::put(x) << (16 * h);
    }
    d[l] = r;
  });
}

// neg and abs only touch the sign, NaN too.
template <bool kNegate, bool kPair>
void sign(Warp& w, const Instr& i, uint32_t lanes) {
  constexpr uint32_t kSigns = kPair ? 0x80008000U : 0x8000U;
  uint32_t* d = w.u32(i.op[0]);
  const uint32_t* a = w.u32(i.op[1]);
  for_lanes(lanes, [&](int l) { d[l] = kNegate ? a[l] ^ kSigns : a[l] & ~kSigns; });
}

template <Function kF, int kSources>
Handler choose(Decoder& d, Type t, bool relu) {
  switch (t) {
    case Type::kF16:
      return relu ? &run<F16, kF, kSources, false, true> : &run<F16, kF, kSources, false, false>;
    case Type::kF16x2:
      return relu ? &run<F16, kF, kSources, true, true> : &run<F16, kF, kSources, true, false>;
    case Type::kBF16:
      return relu ? &run<BF16, kF, kSources, false, true> : &run<BF16, kF, kSources, false, false>;
    case Type::kBF16x2:
      return relu ? &run<BF16, kF, kSources, true, true> : &run<BF16, kF, kSources, true, false>;
    default:
      d.unknown("its type");
  }
}

}  // namespace

void build_half(Decoder& d, const std::string& opcode) {
  const bool pair = d.last_type() == Type::kF16x2 || d.last_type() == Type::kBF16x2;
  d.take("rn");
  const bool keep_nan = d.take("NaN"), relu = d.take("relu");
  const Type t = d.type();
  const size_t sources = opcode == "fma" ? 3 : opcode == "neg" || opcode == "abs" ? 1 : 2;
  d.dst(0, t);
  for (size_t i = 1; i <= sources; ++i) d.src(i, t);
  if (opcode == "fma") return d.emit(choose<&fma, 3>(d, t, relu));
  if (relu) d.unknown("relu");
  if (opcode == "add") return d.emit(choose<&add, 2>(d, t, false));
  if (opcode == "sub") return d.emit(choose<&sub, 2>(d, t, false));
  if (opcode == "mul") return d.emit(choose<&mul, 2>(d, t, false));
  if (opcode == "min")
    return d.emit(keep_nan ? choose<&least_nan, 2>(d, t, false) : choose<&least, 2>(d, t, false));
  if (opcode == "max")
    return d.emit(keep_nan ? choose<&most_nan, 2>(d, t, false) : choose<&most, 2>(d, t, false));
  if (opcode == "neg") return d.emit(pair ? &sign<true, true> : &sign<true, false>);
  if (opcode == "abs") return d.emit(pair ? &sign<false, true> : &sign<false, false>);
  d.unknown();
}

// ex2.approx and tanh.approx have half forms beside the f32 ones.
void add_half_ops(Builders& b) {
  static Builder ex2_single, tanh_single;
  ex2_single = b.at("ex2");
  tanh_single = b.at("tanh");
  b["ex2"] = [](Decoder& d) {
    if (d.last_type() == Type::kF32) return ex2_single(d);
    if (!d.take("approx")) d.unknown();
    d.take("ftz");
    const Type t = d.type();
    d.dst(0, t);
    d.src(1, t);
    d.emit(choose<&exp2_of, 1>(d, t, false));
  };
  b["tanh"] = [](Decoder& d) {
    if (d.last_type() == Type::kF32) return tanh_single(d);
    if (!d.take("approx")) d.unknown();
    const Type t = d.type();
    d.dst(0, t);
    d.src(1, t);
    d.emit(choose<&tanh_of, 1>(d, t, false));
  };
}

}  // namespace deltad::ptx
