// Filters of numbers.
#include <array>
#include <cmath>

#include "text/jinja/arguments.h"
#include "text/jinja/filters.h"
#include "text/jinja/format_spec.h"
#include "text/jinja/number_text.h"
#include "text/jinja/operators.h"
#include "text/jinja/repr.h"

namespace deltad::jinja {

namespace {

void must_be_number(const Value& v, std::string_view filter) {
  if (v.is_undefined()) fail(v.undefined().message());
  if (!v.is_number()) fail(fmt::format("{}: must be a number, not {}", filter, type_name(v)));
}

Value absolute(Render& render, const Value& input, Arguments& a) {
  Parameters("abs", a, {});
  must_be_number(input, "abs");
  if (input.is_integral()) {
    return input.as_int() < 0 ? negate(render, input) : plus(render, input);
  }
  return Value::real(std::abs(input.as_float()));
}

// float(v), or nothing where that is a TypeError or ValueError.
std::optional<double> as_float(const Value& v) {
  if (v.is_undefined()) fail(v.undefined().message());
  if (v.is_number()) return v.as_float();
  return v.is_string() ? parse_float(v.text()) : std::nullopt;
}

Value to_int(Render& render, const Value& input, Arguments& a) {
  const Parameters p("int", a, {"default", "base"});
  const Value otherwise = p.get(0, Value::integer(0));
  if (input.is_undefined()) fail(input.undefined().message());
  if (input.is_integral()) return plus(render, input);
  if (input.is(Kind::kFloat)) {
    return std::isnan(input.as_float()) ? otherwise
                                        : Value::integer(float_to_int(input.as_float()));
  }
  if (!input.is_string()) return otherwise;
  const Int base = p.has(1) ? index_of(p[1], "int") : 10;
  if (base == 0 || (base >= 2 && base <= 36)) {
    render.meter.work(input.text().size());
    if (const auto i = parse_int(input.text(), static_cast<int>(base))) return Value::integer(*i);
  }
  const auto d = parse_float(input.text());
  return d && std::isfinite(*d) ? Value::integer(float_to_int(*d)) : otherwise;
}

Value to_float(Render&, const Value& input, Arguments& a) {
  const Parameters p("float", a, {"default"});
  const auto d = as_float(input);
  return d ? Value::real(*d) : p.get(0, Value::real(0));
}

Value round_value(Render& render, const Value& input, Arguments& a) {
  const Parameters p("round", a, {"precision", "method"});
  const std::string method = p.has(1) ? str(render, p[1]) : "common";
  if (method != "common" && method != "ceil" && method != "floor") {
    fail("method must be common, ceil or floor");
  }
  must_be_number(input, "round");
  // A precision of None asks Python's round() for an integer.
  const bool none = p.has(0) && p[0].is_none();
  const int precision = p.has(0) && !none ? count_of(p[0], "precision") : 0;
  if (method == "common") {
    if (input.is_integral()) return Value::integer(round_int(input.as_int(), precision));
    const double d = round_float(input.as_float(), precision);
    return none ? Value::integer(float_to_int(d)) : Value::real(d);
  }
  if (none) fail("unsupported operand type(s) for ** or pow(): 'int' and 'NoneType'");
  const Value scale = binary(render, Op::kPower, Value::integer(10), Value::integer(precision));
  const Value scaled = binary(render, Op::kMultiply, input, scale);
  Value whole = scaled;
  if (!scaled.is_integral()) {
    const double d = scaled.as_float();
    whole = Value::integer(float_to_int(method == "ceil" ? std::ceil(d) : std::floor(d)));
  }
  return binary(render, Op::kDivide, whole, scale);
}

Value filesizeformat(Render& render, const Value& input, Arguments& a) {
  const Parameters p("filesizeformat", a, {"binary"});
  const bool binary_units = p.has(0) && truthy(render, p[0]);
  const auto bytes = as_float(input);
  if (!bytes) fail(fmt::format("could not convert {} to float", repr(render, input)));
  constexpr std::array<const char*, 8> kDecimal = {"kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"};
  constexpr std::array<const char*, 8> kBinary = {"KiB", "MiB", "GiB", "TiB",
                                                  "PiB", "EiB", "ZiB", "YiB"};
  const double base = binary_units ? 1024 : 1000;
  if (*bytes == 1) return render.text("1 Byte");
  if (*bytes < base) return render.text(int_text(float_to_int(*bytes)) + " Bytes");
  double unit = base;
  size_t i = 0;
  do {
    unit *= base;
  } while (!(*bytes < unit) && ++i < kDecimal.size());
  i = std::min(i, kDecimal.size() - 1);
  const double shown = base * *bytes / unit;
  return render.text((shown < 0 ? "-" : "") + float_digits(render, std::abs(shown), 'f', 1, false) +
                     " " + (binary_units ? kBinary : kDecimal)[i]);
}

}  // namespace

void add_number_filters(FilterTable* table) {
  table->insert({{"abs", absolute},
                 {"filesizeformat", filesizeformat},
                 {"float", to_float},
                 {"int", to_int},
                 {"round", round_value}});
}

}  // namespace deltad::jinja
