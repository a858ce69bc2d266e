#include "text/jinja/operators.h"

#include <algorithm>
#include <cmath>

#include "text/jinja/number_text.h"
#include "text/jinja/percent_format.h"
#include "text/jinja/repr.h"
#include "text/jinja/unicode.h"

namespace deltad::jinja {

namespace {

const char* op_text(Op op) {
  switch (op) {
    case Op::kAdd:
      return "+";
    case Op::kSubtract:
      return "-";
    case Op::kMultiply:
      return "*";
    case Op::kDivide:
      return "/";
    case Op::kFloorDivide:
      return "//";
    case Op::kModulo:
      return "%";
    case Op::kPower:
      return "** or pow()";
  }
  return "";
}

Int floor_divide(Int a, Int b) {
  if (b == -1) return subtract(0, a);
  const Int q = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

Int floor_modulo(Int a, Int b) {
  if (b == -1) return 0;
  const Int r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

Int power(Int base, Int exponent) {
  Int result = 1;
  if (base == 0 || base == 1) return exponent == 0 ? 1 : base;
  if (base == -1) return exponent % 2 == 0 ? 1 : -1;
  if (exponent > 127) fail("integer too large (more than 128 bits)");
  for (Int i = 0; i < exponent; ++i) result = multiply(result, base);
  return result;
}

Value integer_op(Op op, Int a, Int b) {
  switch (op) {
    case Op::kAdd:
      return Value::integer(add(a, b));
    case Op::kSubtract:
      return Value::integer(subtract(a, b));
    case Op::kMultiply:
      return Value::integer(multiply(a, b));
    case Op::kDivide:
      if (b == 0) fail("division by zero");
      return Value::real(
          static_cast<double>(static_cast<long double>(a) / static_cast<long double>(b)));
    case Op::kFloorDivide:
      if (b == 0) fail("integer division or modulo by zero");
      return Value::integer(floor_divide(a, b));
    case Op::kModulo:
      if (b == 0) fail("integer modulo by zero");
      return Value::integer(floor_modulo(a, b));
    case Op::kPower:
      if (b >= 0) return Value::integer(power(a, b));
      if (a == 0) fail("0.0 cannot be raised to a negative power");
      return Value::real(std::pow(static_cast<double>(a), static_cast<double>(b)));
  }
  return Value();
}

double float_modulo(double a, double b) {
  double m = std::fmod(a, b);
  if (m != 0 && (m < 0) != (b < 0)) m += b;
  return m == 0 ? std::copysign(0.0, b) : m;
}

double float_floor_divide(double a, double b) {
  const double m = std::fmod(a, b);
  double q = (a - m) / b;
  if (m != 0 && (m < 0) != (b < 0)) q -= 1;
  if (q == 0) return std::copysign(0.0, a / b);
  const double floored = std::floor(q);
  return q - floored > 0.5 ? floored + 1 : floored;
}

Value float_op(Op op, double a, double b) {
  switch (op) {
    case Op::kAdd:
      return Value::real(a + b);
    case Op::kSubtract:
      return Value::real(a - b);
    case Op::kMultiply:
      return Value::real(a * b);
    case Op::kDivide:
      if (b == 0) fail("float division by zero");
      return Value::real(a / b);
    case Op::kFloorDivide:
      if (b == 0) fail("float floor division by zero");
      return Value::real(float_floor_divide(a, b));
    case Op::kModulo:
      if (b == 0) fail("float modulo");
      return Value::real(float_modulo(a, b));
    case Op::kPower: {
      if (a == 0 && b < 0) fail("0.0 cannot be raised to a negative power");
      const double r = std::pow(a, b);
      if (std::isnan(r) && !std::isnan(a) && !std::isnan(b)) {
        fail("complex numbers are not supported");
      }
      if (std::isinf(r) && std::isfinite(a) && std::isfinite(b)) {
        fail("(34, 'Numerical result out of range')");
      }
      return Value::real(r);
    }
  }
  return Value();
}

[[noreturn]] void unsupported(Op op, const Value& a, const Value& b) {
  if (op == Op::kAdd && a.is_string()) {
    fail(fmt::format("can only concatenate str (not \"{}\") to str", type_name(b)));
  }
  if (op == Op::kAdd && a.is_sequence()) {
    fail(fmt::format("can only concatenate {0} (not \"{1}\") to {0}", type_name(a), type_name(b)));
  }
  if (op == Op::kMultiply && (a.is_string() || a.is_sequence())) {
    fail(fmt::format("can't multiply sequence by non-int of type '{}'", type_name(b)));
  }
  if (op == Op::kMultiply && (b.is_string() || b.is_sequence())) {
    fail(fmt::format("can't multiply sequence by non-int of type '{}'", type_name(a)));
  }
  fail(fmt::format("unsupported operand type(s) for {}: '{}' and '{}'", op_text(op), type_name(a),
                   type_name(b)));
}

// Both strings. Text joined with markup is escaped, and the whole is markup.
Value concatenate(Render& render, const Value& a, const Value& b) {
  const bool markup = a.string().markup || b.string().markup;
  std::string s = markup ? escaped_str(render, a) : a.text();
  render.meter.check_size(s.size() + b.text().size());
  s += markup ? escaped_str(render, b) : b.text();
  return render.text(std::move(s), markup);
}

Value concatenate_lists(Render& render, const Value& a, const Value& b) {
  std::vector<Value> items;
  render.meter.step(static_cast<int64_t>((a.items().size() + b.items().size()) >> 4));
  items.reserve(a.items().size() + b.items().size());
  items.insert(items.end(), a.items().begin(), a.items().end());
  items.insert(items.end(), b.items().begin(), b.items().end());
  return a.is(Kind::kList) ? render.list(std::move(items)) : render.tuple(std::move(items));
}

Value repeat(Render& render, const Value& v, Int times) {
  times = std::max<Int>(times, 0);
  if (v.is_string()) {
    if (v.text().empty()) times = 0;
    check_product(render, multiply(static_cast<Int>(v.text().size()), times));
    std::string s;
    s.reserve(v.text().size() * static_cast<size_t>(times));
    for (Int i = 0; i < times; ++i) s += v.text();
    return render.text(std::move(s), v.string().markup);
  }
  if (v.items().empty()) times = 0;
  const Int total = multiply(static_cast<Int>(v.items().size()), times);
  check_product(render, multiply(total, sizeof(Value)));
  std::vector<Value> items;
  items.reserve(static_cast<size_t>(total));
  for (Int i = 0; i < times; ++i) items.insert(items.end(), v.items().begin(), v.items().end());
  return v.is(Kind::kList) ? render.list(std::move(items)) : render.tuple(std::move(items));
}

struct Bounds {
  Int start, stop, step, count;
};

Bounds bounds(Int length, const Value& start, const Value& stop, const Value& step) {
  const auto part = [](const Value& v) -> Int {
    if (!v.is_integral()) {
      fail("slice indices must be integers or None or have an __index__ method");
    }
    constexpr Int kFar = Int{1} << 62;
    return std::clamp(v.as_int(), -kFar, kFar);
  };
  Bounds b{0, 0, step.is_none() ? 1 : part(step), 0};
  if (b.step == 0) fail("slice step cannot be zero");
  const Int low = b.step > 0 ? 0 : -1, high = b.step > 0 ? length : length - 1;
  const auto place = [&](const Value& v, Int otherwise) {
    if (v.is_none()) return otherwise;
    const Int i = part(v);
    return i < 0 ? std::max(i + length, low) : std::min(i, high);
  };
  b.start = place(start, b.step > 0 ? low : high);
  b.stop = place(stop, b.step > 0 ? high : low);
  if (b.step > 0 && b.start < b.stop) b.count = (b.stop - b.start - 1) / b.step + 1;
  if (b.step < 0 && b.start > b.stop) b.count = (b.start - b.stop - 1) / -b.step + 1;
  return b;
}

Value slice_text(Render& render, const Value& v, const Bounds& b) {
  const String& s = v.string();
  const std::string& text = s.text;
  render.meter.work(text.size());
  const bool ascii = s.length == text.size();
  if (b.step == 1) {
    if (b.count == 0) return render.text("", s.markup);
    const size_t from =
        ascii ? static_cast<size_t>(b.start) : utf8_offset(text, static_cast<size_t>(b.start));
    const std::string_view rest = std::string_view(text).substr(from);
    const size_t size =
        ascii ? static_cast<size_t>(b.count) : utf8_offset(rest, static_cast<size_t>(b.count));
    return render.text(std::string(rest.substr(0, size)), s.markup);
  }
  std::string out;
  if (ascii) {
    for (Int i = 0; i < b.count; ++i) {
      out.push_back(text[static_cast<size_t>(b.start + i * b.step)]);
    }
    return render.text(std::move(out), s.markup);
  }
  std::vector<size_t> starts;
  starts.reserve(s.length + 1);
  for (size_t at = 0; at < text.size(); utf8_next(text, &at)) starts.push_back(at);
  starts.push_back(text.size());
  for (Int i = 0; i < b.count; ++i) {
    const auto at = static_cast<size_t>(b.start + i * b.step);
    out.append(text, starts[at], starts[at + 1] - starts[at]);
  }
  return render.text(std::move(out), s.markup);
}

}  // namespace

void check_product(Render& render, Int bytes) {
  constexpr Int kFar = Int{1} << 62;
  render.meter.check_size(static_cast<size_t>(std::min(bytes, kFar)));
}

Int index_of(const Value& v, const char* what) {
  if (!v.is_integral()) {
    fail(fmt::format("{}: '{}' object cannot be interpreted as an integer", what, type_name(v)));
  }
  return v.as_int();
}

int count_of(const Value& v, const char* what) {
  constexpr Int kFar = (Int{1} << 31) - 1;
  return static_cast<int>(std::clamp(index_of(v, what), -kFar, kFar));
}

Value binary(Render& render, Op op, const Value& a, const Value& b) {
  if (op == Op::kModulo && a.is_string()) return percent_format(render, a, b);
  if (a.is_undefined()) fail(a.undefined().message());
  if (b.is_undefined()) fail(b.undefined().message());
  if (a.is_integral() && b.is_integral()) return integer_op(op, a.as_int(), b.as_int());
  if (a.is_number() && b.is_number()) return float_op(op, a.as_float(), b.as_float());
  if (op == Op::kAdd && a.kind() == b.kind()) {
    if (a.is_string()) return concatenate(render, a, b);
    if (a.is_sequence()) return concatenate_lists(render, a, b);
  }
  if (op == Op::kMultiply) {
    if ((a.is_string() || a.is_sequence()) && b.is_integral()) return repeat(render, a, b.as_int());
    if ((b.is_string() || b.is_sequence()) && a.is_integral()) return repeat(render, b, a.as_int());
  }
  unsupported(op, a, b);
}

Value negate(Render&, const Value& v) {
  if (v.is_integral()) return Value::integer(subtract(0, v.as_int()));
  if (v.is_number()) return Value::real(-v.as_float());
  if (v.is_undefined()) fail(v.undefined().message());
  fail(fmt::format("bad operand type for unary -: '{}'", type_name(v)));
}

Value plus(Render&, const Value& v) {
  if (v.is_integral()) return Value::integer(v.as_int());
  if (v.is_number()) return v;
  if (v.is_undefined()) fail(v.undefined().message());
  fail(fmt::format("bad operand type for unary +: '{}'", type_name(v)));
}

Value slice(Render& render, const Value& v, const Value& start, const Value& stop,
            const Value& step) {
  if (v.is_string()) {
    return slice_text(render, v, bounds(static_cast<Int>(v.string().length), start, stop, step));
  }
  if (v.is_sequence()) {
    const Bounds b = bounds(static_cast<Int>(v.items().size()), start, stop, step);
    std::vector<Value> items;
    items.reserve(static_cast<size_t>(b.count));
    for (Int i = 0; i < b.count; ++i) {
      items.push_back(v.items()[static_cast<size_t>(b.start + i * b.step)]);
    }
    return v.is(Kind::kList) ? render.list(std::move(items)) : render.tuple(std::move(items));
  }
  if (v.is(Kind::kRange)) {
    const Range& r = v.range();
    const Bounds b = bounds(r.length, start, stop, step);
    const auto at = [&](Int i) { return add(r.start, multiply(i, r.step)); };
    return render.make<Range>(Kind::kRange, at(b.start), at(b.stop), multiply(r.step, b.step));
  }
  if (v.is_undefined()) fail(v.undefined().message());
  if (v.is(Kind::kDict)) fail("unhashable type: 'slice'");
  fail(fmt::format("'{}' object is not subscriptable", type_name(v)));
}

}  // namespace deltad::jinja
