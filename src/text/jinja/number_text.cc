#include "text/jinja/number_text.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/jinja/unicode.h"

namespace deltad::jinja {

namespace {

using Unsigned = unsigned __int128;
constexpr Int kMax = static_cast<Int>(~Unsigned{0} >> 1);
constexpr Int kMin = -kMax - 1;

[[noreturn]] void overflow() { fail("integer too large (more than 128 bits)"); }

Unsigned magnitude(Int i) { return i < 0 ? -static_cast<Unsigned>(i) : static_cast<Unsigned>(i); }

// Decimal digits of any script become ASCII; other text is kept.
std::string with_ascii_digits(std::string_view s) {
  std::string out;
  out.reserve(s.size());
  for (size_t at = 0; at < s.size();) {
    const size_t start = at;
    const char32_t c = utf8_next(s, &at);
    if (c < 0x80) {
      out.push_back(static_cast<char>(c));
    } else if (const auto digit = decimal_value(c)) {
      out.push_back(static_cast<char>('0' + *digit));
    } else {
      out.append(s.substr(start, at - start));
    }
  }
  return out;
}

int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'z') return c - 'a' + 10;
  if (c >= 'A' && c <= 'Z') return c - 'A' + 10;
  return 99;
}

int prefix_base(std::string_view s) {
  if (s.size() < 2 || s[0] != '0') return 0;
  switch (s[1] | 0x20) {
    case 'b':
      return 2;
    case 'o':
      return 8;
    case 'x':
      return 16;
    default:
      return 0;
  }
}

bool equals_lower(std::string_view s, std::string_view lower) {
  return s.size() == lower.size() &&
         std::equal(s.begin(), s.end(), lower.begin(),
                    [](char a, char b) { return (a >= 'A' && a <= 'Z' ? a + 32 : a) == b; });
}

Int power_of_ten(int n) {
  Int p = 1;
  for (int i = 0; i < n; ++i) p = multiply(p, 10);
  return p;
}

}  // namespace

Int add(Int a, Int b) {
  if (b > 0 ? a > kMax - b : a < kMin - b) overflow();
  return a + b;
}

Int subtract(Int a, Int b) {
  if (b < 0 ? a > kMax + b : a < kMin + b) overflow();
  return a - b;
}

Int multiply(Int a, Int b) {
  if (a == 0 || b == 0) return 0;
  const bool negative = (a < 0) != (b < 0);
  const Unsigned limit = static_cast<Unsigned>(kMax) + (negative ? 1 : 0);
  if (magnitude(a) > limit / magnitude(b)) overflow();
  const Unsigned product = magnitude(a) * magnitude(b);
  return static_cast<Int>(negative ? -product : product);
}

std::string int_text(Int i) { return int_text(i, 10); }

std::string int_text(Int i, int base) {
  if (i == 0) return "0";
  std::string out;
  const auto b = static_cast<unsigned>(base);
  for (Unsigned m = magnitude(i); m != 0; m /= b) {
    out.push_back("0123456789abcdef"[static_cast<size_t>(m % b)]);
  }
  if (i < 0) out.push_back('-');
  std::reverse(out.begin(), out.end());
  return out;
}

std::string float_text(double d) {
  if (std::isnan(d)) return "nan";
  if (std::isinf(d)) return d < 0 ? "-inf" : "inf";
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, d, std::chars_format::scientific);
  std::string_view text(buffer, static_cast<size_t>(end.ptr - buffer));
  std::string out;
  if (text[0] == '-') {
    out = "-";
    text.remove_prefix(1);
  }
  const size_t e = text.find('e');
  int exponent = 0;
  const char* from = text.data() + e + (text[e + 1] == '+' ? 2 : 1);
  std::from_chars(from, text.data() + text.size(), exponent);
  std::string digits(1, text[0]);
  if (e > 2) digits.append(text.substr(2, e - 2));
  const int n = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    out += digits[0];
    if (n > 1) out.append(".").append(digits, 1);
    return out + fmt::format("e{}{:02}", exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0)
    return out + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  if (n <= exponent + 1) {
    return out + digits + std::string(static_cast<size_t>(exponent + 1 - n), '0') + ".0";
  }
  const auto point = static_cast<size_t>(exponent + 1);
  return out + digits.substr(0, point) + "." + digits.substr(point);
}

std::optional<Int> parse_int(std::string_view text, int base) {
  const std::string ascii = with_ascii_digits(strip(text));
  std::string_view s = ascii;
  bool negative = false;
  if (!s.empty() && (s[0] == '-' || s[0] == '+')) {
    negative = s[0] == '-';
    s.remove_prefix(1);
  }
  const int prefixed = prefix_base(s);
  bool after_prefix = false;
  if (prefixed != 0 && (base == 0 || base == prefixed)) {
    base = prefixed;
    s.remove_prefix(2);
    after_prefix = true;
  }
  bool zero_only = false;
  if (base == 0) {
    base = 10;
    zero_only = s.size() > 1 && s[0] == '0';  // 0123 is refused, 00 is not
  }
  Int value = 0;
  bool digit_before = after_prefix;  // where an underscore may stand
  bool any = false;
  for (const char c : s) {
    if (c == '_') {
      if (!digit_before) return std::nullopt;
      digit_before = false;
      continue;
    }
    const int digit = digit_of(c);
    if (digit >= base || (zero_only && digit != 0)) return std::nullopt;
    value = subtract(multiply(value, base), digit);  // negative, to reach the least value
    digit_before = any = true;
  }
  if (!any || !digit_before) return std::nullopt;
  return negative ? value : subtract(0, value);
}

std::optional<double> parse_float(std::string_view text) {
  const std::string ascii = with_ascii_digits(strip(text));
  std::string_view s = ascii;
  double sign = 1;
  if (!s.empty() && (s[0] == '-' || s[0] == '+')) {
    if (s[0] == '-') sign = -1;
    s.remove_prefix(1);
  }
  if (equals_lower(s, "inf") || equals_lower(s, "infinity")) return sign * INFINITY;
  if (equals_lower(s, "nan")) return NAN;
  std::string clean;
  for (size_t i = 0; i < s.size(); ++i) {
    const bool digit = s[i] >= '0' && s[i] <= '9';
    if (s[i] == '_') {
      const bool between =
          i > 0 && i + 1 < s.size() && digit_of(s[i - 1]) < 10 && digit_of(s[i + 1]) < 10;
      if (!between) return std::nullopt;
      continue;
    }
    if (!digit && s[i] != '.' && s[i] != 'e' && s[i] != 'E' && s[i] != '+' && s[i] != '-') {
      return std::nullopt;
    }
    clean.push_back(s[i]);
  }
  if (clean.empty() || (digit_of(clean[0]) > 9 && clean[0] != '.')) return std::nullopt;
  double d = 0;
  const char* end = clean.data() + clean.size();
  const auto r = std::from_chars(clean.data(), end, d);
  if (r.ptr != end) return std::nullopt;
  if (r.ec == std::errc::result_out_of_range) {
    const size_t e = clean.find_first_of("eE");
    const bool small = e != std::string::npos && clean.find('-', e) != std::string::npos;
    d = small ? 0 : INFINITY;
  } else if (r.ec != std::errc()) {
    return std::nullopt;
  }
  return sign * d;
}

Int float_to_int(double d) {
  if (std::isnan(d)) fail("cannot convert float NaN to integer");
  if (std::isinf(d)) fail("cannot convert float infinity to integer");
  if (std::abs(d) >= 0x1p127) overflow();
  return static_cast<Int>(d);
}

double round_float(double d, int digits) {
  if (!std::isfinite(d) || d == 0) return d;
  if (digits > 340) return d;
  if (digits < -310) return std::copysign(0.0, d);
  char buffer[720];
  if (digits >= 0) {
    const auto end =
        std::to_chars(buffer, buffer + sizeof buffer, d, std::chars_format::fixed, digits);
    double rounded = d;
    std::from_chars(buffer, end.ptr, rounded);
    return rounded;
  }
  // The digits of the whole part, exact; what is behind them only breaks ties.
  const double whole = std::trunc(std::abs(d));
  const auto end =
      std::to_chars(buffer, buffer + sizeof buffer, whole, std::chars_format::fixed, 0);
  std::string text(buffer, static_cast<size_t>(end.ptr - buffer));
  const auto drop = static_cast<size_t>(-digits);
  if (text.size() < drop) return std::copysign(0.0, d);
  text.insert(0, "0");
  const size_t keep = text.size() - drop;
  const bool rest =
      text.find_first_not_of('0', keep + 1) != std::string::npos || whole != std::abs(d);
  const char next = text[keep];
  const bool odd = (text[keep - 1] - '0') % 2 == 1;
  std::string kept = text.substr(0, keep);
  if (next > '5' || (next == '5' && (rest || odd))) {
    size_t i = kept.size();
    while (i > 0 && kept[i - 1] == '9') kept[--i] = '0';
    if (i > 0) ++kept[i - 1];
  }
  kept.append(drop, '0');
  double rounded = 0;
  std::from_chars(kept.data(), kept.data() + kept.size(), rounded);
  return std::copysign(rounded, d);
}

Int round_int(Int i, int digits) {
  if (digits >= 0) return i;
  if (digits < -38) return 0;
  const Int unit = power_of_ten(-digits);
  Int rest = i % unit;
  if (rest < 0) rest += unit;
  Int down = subtract(i, rest);
  const Int other = unit - rest;
  if (rest > other || (rest == other && (down / unit) % 2 != 0)) down = add(down, unit);
  return down;
}

}  // namespace deltad::jinja
