#include "text/jinja/format_spec.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/jinja/number_text.h"
#include "text/jinja/operators.h"
#include "text/jinja/repr.h"
#include "text/jinja/unicode.h"

namespace deltad::jinja {

namespace {

bool is_align(char c) { return c == '<' || c == '>' || c == '=' || c == '^'; }

int read_number(Render& render, std::string_view spec, size_t* at) {
  Int n = 0;
  while (*at < spec.size() && spec[*at] >= '0' && spec[*at] <= '9') {
    n = n * 10 + (spec[(*at)++] - '0');
    check_product(render, n);
  }
  return static_cast<int>(n);
}

std::string grouped(std::string_view digits, char separator, size_t size) {
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % size == 0) out.push_back(separator);
    out.push_back(digits[i]);
  }
  return out;
}

std::string group_number(const FormatSpec& spec, const std::string& digits, size_t size) {
  if (spec.grouping == 0) return digits;
  const size_t whole = std::min(digits.find_first_not_of("0123456789abcdefABCDEF"), digits.size());
  return grouped(std::string_view(digits).substr(0, whole), spec.grouping, size) +
         digits.substr(whole);
}

std::string sign_text(const FormatSpec& spec, bool negative) {
  if (negative) return "-";
  return spec.sign == '-' ? "" : std::string(1, spec.sign);
}

[[noreturn]] void unknown_code(char code, const std::string& type) {
  fail(fmt::format("Unknown format code '{}' for object of type '{}'", code, type));
}

// Zeros for the width go between the sign and the digits; with grouping they are grouped too.
std::string number_padded(Render& render, FormatSpec spec, const std::string& prefix,
                          std::string body, size_t group) {
  if (spec.zero && spec.align == 0) {
    spec.align = '=';
    spec.fill = "0";
  }
  if (spec.align == '=' && spec.fill == "0" && spec.grouping != 0) {
    const size_t point = std::min(body.find_first_of(".e%"), body.size());
    std::string digits = body.substr(0, point);
    digits.erase(std::remove(digits.begin(), digits.end(), spec.grouping), digits.end());
    const std::string tail = body.substr(point);
    while (grouped(digits, spec.grouping, group).size() + tail.size() + prefix.size() <
           static_cast<size_t>(spec.width)) {
      digits.insert(digits.begin(), '0');
      render.meter.step();
    }
    body = grouped(digits, spec.grouping, group) + tail;
  }
  return padded(render, spec, prefix, body, '>');
}

std::string format_int(Render& render, const FormatSpec& spec, Int value, const std::string& type) {
  if (spec.precision >= 0) fail("Precision not allowed in integer format specifier");
  std::string prefix = sign_text(spec, value < 0);
  int base = 10;
  switch (spec.type) {
    case 0:
    case 'd':
    case 'n':
      break;
    case 'b':
      base = 2;
      if (spec.alternate) prefix += "0b";
      break;
    case 'o':
      base = 8;
      if (spec.alternate) prefix += "0o";
      break;
    case 'x':
      base = 16;
      if (spec.alternate) prefix += "0x";
      break;
    case 'X':
      base = 16;
      if (spec.alternate) prefix += "0X";
      break;
    case 'c': {
      if (value < 0 || value > 0x10ffff || (value >= 0xd800 && value < 0xe000)) {
        fail("%c arg not in range(0x110000)");
      }
      std::string c;
      utf8_append(&c, static_cast<char32_t>(value));
      return padded(render, spec, "", c, '<');
    }
    default:
      unknown_code(spec.type, type);
  }
  if (spec.grouping == ',' && base != 10) {
    fail(fmt::format("Cannot specify ',' with '{}'.", spec.type));
  }
  std::string digits = int_text(value, base);
  if (value < 0) digits.erase(0, 1);
  if (spec.type == 'X') digits = to_upper(digits);
  const size_t group = base == 10 ? 3 : 4;
  return number_padded(render, spec, prefix, group_number(spec, digits, group), group);
}

std::string format_float(Render& render, const FormatSpec& spec, double d,
                         const std::string& type) {
  const bool negative = std::signbit(d) && !std::isnan(d);
  std::string digits;
  switch (spec.type) {
    case 0:
      if (spec.precision < 0) {
        digits = float_text(std::abs(d));
      } else {
        // As g, but with at least one digit behind the point.
        digits = float_digits(render, std::abs(d), 'g', spec.precision, spec.alternate);
        if (std::isfinite(d) && digits.find_first_of(".e") == std::string::npos) {
          const int places = std::max(spec.precision, 1);
          const auto whole = static_cast<int>(digits.size());
          if (whole >= places) {
            digits = float_digits(render, std::abs(d), 'e', std::max(places - 1, 0), false);
            const size_t e = digits.find('e');
            std::string mantissa = digits.substr(0, e);
            if (mantissa.find('.') != std::string::npos) {
              mantissa.erase(mantissa.find_last_not_of('0') + 1);
              if (mantissa.back() == '.') mantissa.pop_back();
            }
            digits = mantissa + digits.substr(e);
          } else {
            digits += ".0";
          }
        }
      }
      break;
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
      digits = float_digits(render, std::abs(d), spec.type, spec.precision, spec.alternate);
      break;
    case 'n':
      digits = float_digits(render, std::abs(d), 'g', spec.precision, spec.alternate);
      break;
    case '%':
      digits = float_digits(render, std::abs(d) * 100, 'f', spec.precision, spec.alternate) + "%";
      break;
    default:
      unknown_code(spec.type, type);
  }
  return number_padded(render, spec, sign_text(spec, negative), group_number(spec, digits, 3), 3);
}

std::string format_text(Render& render, const FormatSpec& spec, std::string_view s) {
  if (spec.type != 0 && spec.type != 's') unknown_code(spec.type, "str");
  if (spec.sign != '-') fail("Sign not allowed in string format specifier");
  if (spec.alternate) fail("Alternate form (#) not allowed in string format specifier");
  if (spec.align == '=') fail("'=' alignment not allowed in string format specifier");
  if (spec.grouping != 0) fail(fmt::format("Cannot specify '{}' with 's'.", spec.grouping));
  if (spec.precision >= 0) s = s.substr(0, utf8_offset(s, static_cast<size_t>(spec.precision)));
  FormatSpec with_zero = spec;
  if (spec.zero && spec.align == 0) {
    with_zero.fill = "0";
    with_zero.align = '<';
  }
  return padded(render, with_zero, "", s, '<');
}

}  // namespace

FormatSpec parse_format_spec(Render& render, std::string_view spec) {
  FormatSpec f;
  size_t at = 0;
  if (!spec.empty()) {
    size_t next = 0;
    utf8_next(spec, &next);
    if (next < spec.size() && is_align(spec[next])) {
      f.fill = std::string(spec.substr(0, next));
      f.align = spec[next];
      at = next + 1;
    } else if (is_align(spec[0])) {
      f.align = spec[0];
      at = 1;
    }
  }
  const auto take = [&](std::string_view any) {
    if (at < spec.size() && any.find(spec[at]) != std::string_view::npos) return spec[at++];
    return '\0';
  };
  if (const char sign = take("+- ")) f.sign = sign;
  f.alternate = take("#") != 0;
  f.zero = take("0") != 0;
  f.width = read_number(render, spec, &at);
  f.grouping = take(",_");
  if (take(".") != 0) {
    if (at >= spec.size() || spec[at] < '0' || spec[at] > '9') {
      fail("Format specifier missing precision");
    }
    f.precision = read_number(render, spec, &at);
  }
  if (at < spec.size()) f.type = spec[at++];
  if (at != spec.size()) fail("Invalid format specifier");
  return f;
}

std::string float_digits(Render& render, double d, char type, int precision, bool alternate) {
  const bool upper = type >= 'A' && type <= 'Z';
  if (!std::isfinite(d)) {
    const char* text = std::isnan(d) ? "nan" : "inf";
    return upper ? to_upper(text) : text;
  }
  if (precision < 0) precision = 6;
  render.meter.check_size(static_cast<size_t>(precision));
  std::string buffer(static_cast<size_t>(precision) + 340, '\0');
  const char kind = static_cast<char>(type | 0x20);
  const auto format = kind == 'e'   ? std::chars_format::scientific
                      : kind == 'f' ? std::chars_format::fixed
                                    : std::chars_format::general;
  const auto end =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), d, format, precision);
  if (end.ec != std::errc()) fail("the number cannot be formatted with that precision");
  buffer.resize(static_cast<size_t>(end.ptr - buffer.data()));
  if (alternate && buffer.find('.') == std::string::npos) {
    buffer.insert(std::min(buffer.find('e'), buffer.size()), ".");
  }
  return upper ? to_upper(buffer) : buffer;
}

std::string padded(Render& render, const FormatSpec& spec, std::string_view prefix,
                   std::string_view body, char default_align) {
  const size_t length = utf8_length(prefix) + utf8_length(body);
  const auto width = static_cast<size_t>(std::max(spec.width, 0));
  const size_t missing = width > length ? width - length : 0;
  check_product(render, multiply(static_cast<Int>(missing), static_cast<Int>(spec.fill.size())));
  const auto fill = [&](size_t n) {
    std::string s;
    s.reserve(n * spec.fill.size());
    for (size_t i = 0; i < n; ++i) s += spec.fill;
    return s;
  };
  std::string out;
  switch (spec.align != 0 ? spec.align : default_align) {
    case '<':
      out.append(prefix).append(body).append(fill(missing));
      break;
    case '^':
      out.append(fill(missing / 2)).append(prefix).append(body).append(fill(missing - missing / 2));
      break;
    case '=':
      out.append(prefix).append(fill(missing)).append(body);
      break;
    default:
      out.append(fill(missing)).append(prefix).append(body);
  }
  render.meter.check_size(out.size());
  return out;
}

std::string format_value(Render& render, const Value& value, std::string_view spec) {
  if (spec.empty()) return str(render, value);
  if (value.is_integral()) {
    const FormatSpec f = parse_format_spec(render, spec);
    if (f.type != 0 && std::string_view("eEfFgG%").find(f.type) != std::string_view::npos) {
      return format_float(render, f, value.as_float(), "int");
    }
    return format_int(render, f, value.as_int(), type_name(value));
  }
  if (value.is(Kind::kFloat)) {
    return format_float(render, parse_format_spec(render, spec), value.as_float(), "float");
  }
  if (value.is_string()) {
    return format_text(render, parse_format_spec(render, spec), value.text());
  }
  fail(fmt::format("unsupported format string passed to {}.__format__", type_name(value)));
}

}  // namespace deltad::jinja
