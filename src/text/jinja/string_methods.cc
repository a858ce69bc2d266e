// Methods of str: case, stripping, padding, questions about characters; and the table of all.
#include "text/jinja/string_methods.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "text/jinja/arguments.h"
#include "text/jinja/brace_format.h"
#include "text/jinja/format_spec.h"
#include "text/jinja/methods.h"
#include "text/jinja/operators.h"
#include "text/jinja/repr.h"
#include "text/jinja/unicode.h"

namespace deltad::jinja {

namespace {

template <std::string (*Convert)(std::string_view)>
Value converted(Render& render, const Value& self, Arguments& a) {
  Parameters("str method", a, {});
  render.meter.work(self.text().size());
  return derived(render, self, Convert(self.text()));
}

enum class Side { kBoth, kLeft, kRight };

template <Side S>
Value stripped(Render& render, const Value& self, Arguments& a) {
  const Parameters p("strip", a, {"/chars"});
  std::string_view s = self.text();
  render.meter.work(s.size());
  if (!p.has(0) || p[0].is_none()) {
    if (S != Side::kRight) s = strip_left(s);
    if (S != Side::kLeft) s = strip_right(s);
    return derived(render, self, std::string(s));
  }
  if (p[0].is_undefined()) fail(p[0].undefined().message());
  if (!p[0].is_string()) fail("strip arg must be None or str");
  const std::string& chars = p[0].text();
  render.meter.step(static_cast<int64_t>((s.size() >> 10) * (chars.size() >> 4)));
  if (S != Side::kRight) s = strip_left(s, chars);
  if (S != Side::kLeft) s = strip_right(s, chars);
  return derived(render, self, std::string(s));
}

std::string fill_of(Render& render, const Value& self, const Parameters& p) {
  if (!p.has(1)) return " ";
  if (!p[1].is_string() || p[1].string().length != 1) {
    fail("The fill character must be exactly one character long");
  }
  return inserted(render, self, p[1], "fill");
}

Value aligned(Render& render, const Value& self, Arguments& a, char align) {
  const Parameters p("str method", a, {"/width", "/fillchar"}, 1);
  FormatSpec spec;
  spec.fill = fill_of(render, self, p);
  spec.align = align;
  spec.width = count_of(p[0], "width");
  return derived(render, self, padded(render, spec, "", self.text(), align));
}

Value str_ljust(Render& render, const Value& self, Arguments& a) {
  return aligned(render, self, a, '<');
}
Value str_rjust(Render& render, const Value& self, Arguments& a) {
  return aligned(render, self, a, '>');
}

Value str_center(Render& render, const Value& self, Arguments& a) {
  const Parameters p("center", a, {"/width", "/fillchar"}, 1);
  FormatSpec spec;
  spec.fill = fill_of(render, self, p);
  const Int width = count_of(p[0], "width");
  const auto length = static_cast<Int>(self.string().length);
  if (width <= length) return self;
  // Python puts the odd space to the left only where the width is odd too.
  const Int space = width - length;
  spec.width = static_cast<int>(length + space / 2 + (space & width & 1));
  const std::string left = padded(render, spec, "", self.text(), '>');
  spec.width = static_cast<int>(width);
  return derived(render, self, padded(render, spec, "", left, '<'));
}

Value str_zfill(Render& render, const Value& self, Arguments& a) {
  const Parameters p("zfill", a, {"/width"}, 1);
  FormatSpec spec;
  spec.fill = "0";
  spec.align = '=';
  spec.width = count_of(p[0], "width");
  const std::string_view s = self.text();
  const size_t sign = !s.empty() && (s[0] == '+' || s[0] == '-') ? 1 : 0;
  return derived(render, self, padded(render, spec, s.substr(0, sign), s.substr(sign), '='));
}

Value str_expandtabs(Render& render, const Value& self, Arguments& a) {
  const Parameters p("expandtabs", a, {"tabsize"});
  const int size = p.has(0) ? count_of(p[0], "tabsize") : 8;
  const std::string& s = self.text();
  std::string out;
  size_t column = 0;
  for (size_t at = 0; at < s.size();) {
    const size_t start = at;
    const char32_t c = utf8_next(s, &at);
    if (c == '\t') {
      const size_t spaces = size > 0 ? static_cast<size_t>(size) - column % size : 0;
      render.meter.check_size(out.size() + spaces);
      out.append(spaces, ' ');
      column += spaces;
      continue;
    }
    out.append(s, start, at - start);
    column = c == '\n' || c == '\r' ? 0 : column + 1;
  }
  return derived(render, self, std::move(out));
}

template <bool (*Is)(char32_t), bool EmptyIs>
Value all_are(Render& render, const Value& self, Arguments& a) {
  Parameters("str method", a, {});
  const std::string& s = self.text();
  render.meter.work(s.size());
  if (s.empty()) return Value::boolean(EmptyIs);
  for (size_t at = 0; at < s.size();) {
    if (!Is(utf8_next(s, &at))) return Value::boolean(false);
  }
  return Value::boolean(true);
}

bool is_ascii(char32_t c) { return c < 0x80; }

bool cased_as(const std::string& s, bool upper) {
  bool cased = false;
  for (size_t at = 0; at < s.size();) {
    const char32_t c = utf8_next(s, &at);
    if (is_title(c) || (upper ? is_lower(c) : is_upper(c))) return false;
    cased = cased || (upper ? is_upper(c) : is_lower(c));
  }
  return cased;
}

Value str_islower(Render& render, const Value& self, Arguments& a) {
  Parameters("islower", a, {});
  render.meter.work(self.text().size());
  return Value::boolean(cased_as(self.text(), false));
}
Value str_isupper(Render& render, const Value& self, Arguments& a) {
  Parameters("isupper", a, {});
  render.meter.work(self.text().size());
  return Value::boolean(cased_as(self.text(), true));
}

Value str_istitle(Render& render, const Value& self, Arguments& a) {
  Parameters("istitle", a, {});
  const std::string& s = self.text();
  render.meter.work(s.size());
  bool cased = false, inside = false;
  for (size_t at = 0; at < s.size();) {
    const char32_t c = utf8_next(s, &at);
    const bool capital = is_upper(c) || is_title(c);
    if ((capital && inside) || (is_lower(c) && !inside)) return Value::boolean(false);
    inside = capital || is_lower(c);
    cased = cased || inside;
  }
  return Value::boolean(cased);
}

Value str_isidentifier(Render& render, const Value& self, Arguments& a) {
  Parameters("isidentifier", a, {});
  const std::string& s = self.text();
  render.meter.work(s.size());
  for (size_t at = 0; at < s.size();) {
    const bool first = at == 0;
    const char32_t c = utf8_next(s, &at);
    if (c == '_' || is_alpha(c)) continue;
    if (first || !(is_decimal(c) || is_mark(c))) return Value::boolean(false);
  }
  return Value::boolean(!s.empty());
}

const std::unordered_map<std::string_view, Method>& methods() {
  static const std::unordered_map<std::string_view, Method> kMethods = {
      {"capitalize", converted<to_capitalized>},
      {"casefold", converted<to_casefold>},
      {"center", str_center},
      {"count", str_count},
      {"endswith", str_endswith},
      {"expandtabs", str_expandtabs},
      {"find", str_find},
      {"format", str_format},
      {"format_map", str_format_map},
      {"index", str_index},
      {"isalnum", all_are<is_alnum, false>},
      {"isalpha", all_are<is_alpha, false>},
      {"isascii", all_are<is_ascii, true>},
      {"isdecimal", all_are<is_decimal, false>},
      {"isdigit", all_are<is_digit, false>},
      {"isidentifier", str_isidentifier},
      {"islower", str_islower},
      {"isnumeric", all_are<is_numeric, false>},
      {"isprintable", all_are<is_printable, true>},
      {"isspace", all_are<is_space, false>},
      {"istitle", str_istitle},
      {"isupper", str_isupper},
      {"join", str_join},
      {"ljust", str_ljust},
      {"lower", converted<to_lower>},
      {"lstrip", stripped<Side::kLeft>},
      {"partition", str_partition},
      {"removeprefix", str_removeprefix},
      {"removesuffix", str_removesuffix},
      {"replace", str_replace},
      {"rfind", str_rfind},
      {"rindex", str_rindex},
      {"rjust", str_rjust},
      {"rpartition", str_rpartition},
      {"rsplit", str_rsplit},
      {"rstrip", stripped<Side::kRight>},
      {"split", str_split},
      {"splitlines", str_splitlines},
      {"startswith", str_startswith},
      {"strip", stripped<Side::kBoth>},
      {"swapcase", converted<to_swapped>},
      {"title", converted<to_title>},
      {"upper", converted<to_upper>},
      {"zfill", str_zfill},
  };
  return kMethods;
}

}  // namespace

Method find_string_method(std::string_view name) {
  const auto it = methods().find(name);
  return it == methods().end() ? nullptr : it->second;
}

}  // namespace deltad::jinja
