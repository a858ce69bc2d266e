#include "text/jinja/percent_format.h"

#include <cmath>

#include "text/jinja/compare.h"
#include "text/jinja/format_spec.h"
#include "text/jinja/number_text.h"
#include "text/jinja/operators.h"
#include "text/jinja/repr.h"
#include "text/jinja/unicode.h"

namespace deltad::jinja {

namespace {

class Formatter {
 public:
  Formatter(Render& render, const Value& format, const Value& arguments)
      : render_(render),
        format_(format.text()),
        markup_(format.string().markup),
        arguments_(arguments) {}

  std::string run() {
    for (size_t at = 0; at < format_.size();) {
      const size_t percent = std::min(format_.find('%', at), format_.size());
      out_.append(format_, at, percent - at);
      at = percent;
      if (at < format_.size()) conversion(&at);
      render_.meter.check_size(out_.size());
    }
    const bool mapping = arguments_.is(Kind::kDict) || arguments_.is(Kind::kList) ||
                         arguments_.is(Kind::kRange) || arguments_.is_undefined();
    const size_t given = arguments_.is(Kind::kTuple) ? arguments_.items().size() : 1;
    if (used_ < given && !mapping) {
      fail("not all arguments converted during string formatting");
    }
    return std::move(out_);
  }

 private:
  char peek(size_t at) const {
    if (at >= format_.size()) fail("incomplete format");
    return format_[at];
  }

  Value next_argument() {
    if (arguments_.is(Kind::kTuple)) {
      if (used_ >= arguments_.items().size()) fail("not enough arguments for format string");
      return arguments_.items()[used_++];
    }
    if (used_++ > 0) fail("not enough arguments for format string");
    return arguments_;
  }

  int number(size_t* at) {
    if (peek(*at) == '*') {
      ++*at;
      const Value v = next_argument();
      if (!v.is_integral()) fail("* wants int");
      check_product(render_, v.as_int() < 0 ? -v.as_int() : v.as_int());
      return static_cast<int>(v.as_int());
    }
    Int n = 0;
    while (peek(*at) >= '0' && peek(*at) <= '9') {
      n = n * 10 + (format_[(*at)++] - '0');
      check_product(render_, n);
    }
    return static_cast<int>(n);
  }

  Value named_argument(size_t* at) {
    if (!arguments_.is(Kind::kDict)) fail("format requires a mapping");
    const size_t start = ++*at;
    for (int open = 1; open > 0; ++*at) {
      if (*at >= format_.size()) fail("incomplete format key");
      if (format_[*at] == '(') ++open;
      if (format_[*at] == ')') --open;
    }
    const std::string key = format_.substr(start, *at - 1 - start);
    const Value* v = find(arguments_.dict(), key);
    if (v == nullptr) fail(quoted_repr(key));
    return *v;
  }

  void conversion(size_t* at) {
    ++*at;
    Value argument = Value::missing();
    if (peek(*at) == '(') argument = named_argument(at);
    FormatSpec spec;
    for (;; ++*at) {
      const char c = peek(*at);
      if (c == '-') {
        spec.align = '<';
      } else if (c == '+') {
        spec.sign = '+';
      } else if (c == ' ') {
        if (spec.sign != '+') spec.sign = ' ';
      } else if (c == '#') {
        spec.alternate = true;
      } else if (c == '0') {
        spec.zero = true;
      } else {
        break;
      }
    }
    spec.width = number(at);
    if (spec.width < 0) {
      spec.align = '<';
      spec.width = -spec.width;
    }
    if (peek(*at) == '.') {
      ++*at;
      spec.precision = std::max(number(at), 0);
    }
    while (peek(*at) == 'h' || peek(*at) == 'l' || peek(*at) == 'L') ++*at;
    spec.type = format_[*at];
    ++*at;
    if (spec.type == '%') {
      out_.push_back('%');
      return;
    }
    if (argument.is_missing()) {
      argument = next_argument();
    } else {
      used_ = 1;
    }
    convert(spec, argument);
  }

  void convert(const FormatSpec& spec, const Value& v) {
    switch (spec.type) {
      case 's':
      case 'r':
      case 'a':
        return text(spec, v);
      case 'c':
        return character(spec, v);
      case 'd':
      case 'i':
      case 'u':
      case 'o':
      case 'x':
      case 'X':
        return integer(spec, v);
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
        return real(spec, v);
      default:
        fail(
            fmt::format("unsupported format character {}", quoted_repr(std::string(1, spec.type))));
    }
  }

  void text(const FormatSpec& spec, const Value& v) {
    std::string s;
    if (spec.type == 's') {
      s = markup_ ? escaped_str(render_, v) : str(render_, v);
    } else {
      s = spec.type == 'a' && v.is_string() ? quoted_repr(v.text(), true) : repr(render_, v);
      if (markup_) s = escape_html(s);
    }
    if (spec.precision >= 0) s.resize(utf8_offset(s, static_cast<size_t>(spec.precision)));
    out_ += padded(render_, spec, "", s, '>');
  }

  void character(const FormatSpec& spec, const Value& v) {
    std::string c;
    if (v.is_string() && v.string().length == 1) {
      c = v.text();
    } else if (v.is_integral()) {
      const Int i = v.as_int();
      if (i < 0 || i > 0x10ffff || (i >= 0xd800 && i < 0xe000)) {
        fail("%c arg not in range(0x110000)");
      }
      utf8_append(&c, static_cast<char32_t>(i));
    } else {
      fail("%c requires int or char");
    }
    out_ += padded(render_, spec, "", c, '>');
  }

  std::string sign(const FormatSpec& spec, bool negative) {
    if (negative) return "-";
    return spec.sign == '-' ? "" : std::string(1, spec.sign);
  }

  void number_padded(FormatSpec spec, const std::string& prefix, const std::string& digits) {
    if (spec.zero && spec.align == 0) {
      spec.align = '=';
      spec.fill = "0";
    }
    out_ += padded(render_, spec, prefix, digits, '>');
  }

  void integer(const FormatSpec& spec, const Value& v) {
    Int i = 0;
    const bool hex = spec.type == 'o' || spec.type == 'x' || spec.type == 'X';
    if (v.is_integral()) {
      i = v.as_int();
    } else if (v.is(Kind::kFloat) && !hex) {
      i = float_to_int(v.as_float());
    } else if (v.is_undefined()) {
      fail(v.undefined().message());
    } else if (hex) {
      fail(fmt::format("%{} format: an integer is required, not {}", spec.type, type_name(v)));
    } else {
      fail(fmt::format("%{} format: a real number is required, not {}", spec.type, type_name(v)));
    }
    std::string prefix = sign(spec, i < 0);
    if (spec.alternate && spec.type == 'o') prefix += "0o";
    if (spec.alternate && spec.type == 'x') prefix += "0x";
    if (spec.alternate && spec.type == 'X') prefix += "0X";
    std::string digits = int_text(i, spec.type == 'o' ? 8 : hex ? 16 : 10);
    if (i < 0) digits.erase(0, 1);
    if (spec.type == 'X') digits = to_upper(digits);
    if (spec.precision > static_cast<int>(digits.size())) {
      digits.insert(0, static_cast<size_t>(spec.precision) - digits.size(), '0');
    }
    number_padded(spec, prefix, digits);
  }

  void real(const FormatSpec& spec, const Value& v) {
    if (v.is_undefined()) fail(v.undefined().message());
    if (!v.is_number()) fail(fmt::format("must be real number, not {}", type_name(v)));
    const double d = v.as_float();
    number_padded(spec, sign(spec, std::signbit(d) && !std::isnan(d)),
                  float_digits(render_, std::abs(d), spec.type, spec.precision, spec.alternate));
  }

  Render& render_;
  const std::string& format_;
  const bool markup_;
  const Value& arguments_;
  std::string out_;
  size_t used_ = 0;
};

}  // namespace

Value percent_format(Render& render, const Value& format, const Value& arguments) {
  return render.text(Formatter(render, format, arguments).run(), format.string().markup);
}

}  // namespace deltad::jinja
