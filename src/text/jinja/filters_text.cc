// Filters of text: case, whitespace, replacing, formatting.
#include <algorithm>

#include "text/jinja/arguments.h"
#include "text/jinja/compare.h"
#include "text/jinja/filters.h"
#include "text/jinja/iteration.h"
#include "text/jinja/json_text.h"
#include "text/jinja/methods.h"
#include "text/jinja/operators.h"
#include "text/jinja/percent_format.h"
#include "text/jinja/repr.h"
#include "text/jinja/string_methods.h"
#include "text/jinja/text_wrap.h"
#include "text/jinja/unicode.h"

namespace deltad::jinja {

namespace {

// The string that a filter works on, which must be one.
const std::string& must_be_text(const Value& v, std::string_view filter) {
  if (v.is_undefined()) fail(v.undefined().message());
  if (!v.is_string()) fail(fmt::format("{}: expected str, got {}", filter, type_name(v)));
  return v.text();
}

template <std::string (*Convert)(std::string_view)>
Value converted(Render& render, const Value& input, Arguments& a) {
  Parameters("filter", a, {});
  const Value s = soft_str(render, input);
  render.meter.work(s.text().size());
  return derived(render, s, Convert(s.text()));
}

bool splits_title(char32_t c) {
  return c == '-' || c == '(' || c == '{' || c == '[' || c == '<' || is_space(c);
}

// Words begin behind spaces, hyphens and opening brackets.
std::string title_words(std::string_view s) {
  std::string out;
  for (size_t at = 0; at < s.size();) {
    size_t end = at;
    const bool separator = [&] {
      size_t next = at;
      return splits_title(utf8_next(s, &next));
    }();
    size_t first_end = at;
    utf8_next(s, &first_end);
    while (end < s.size()) {
      size_t next = end;
      if (splits_title(utf8_next(s, &next)) != separator) break;
      end = next;
    }
    if (separator) {
      out.append(s.substr(at, end - at));
    } else {
      out.append(to_upper(s.substr(at, first_end - at)));
      out.append(to_lower(s.substr(first_end, end - first_end)));
    }
    at = end;
  }
  return out;
}

Value trim(Render& render, const Value& input, Arguments& a) {
  const Parameters p("trim", a, {"chars"});
  Arguments inner;
  if (p.has(0)) inner.positional.push_back(p[0]);
  return find_string_method("strip")(render, soft_str(render, input), inner);
}

Value center(Render& render, const Value& input, Arguments& a) {
  const Parameters p("center", a, {"width"});
  Arguments inner;
  inner.positional.push_back(p.get(0, Value::integer(80)));
  return find_string_method("center")(render, soft_str(render, input), inner);
}

Value replace(Render& render, const Value& input, Arguments& a) {
  const Parameters p("replace", a, {"old", "new", "count"}, 2);
  const Int count = p.has(2) && !p[2].is_none() ? index_of(p[2], "replace") : -1;
  if (!render.autoescape) {
    return render.text(
        replaced(render, str(render, input), str(render, p[0]), str(render, p[1]), count));
  }
  const auto safe = [](const Value& v) { return v.is_string() && v.string().markup; };
  Value s = soft_str(render, input);
  if (safe(p[0]) || (safe(p[1]) && !safe(input))) s = render.text(escaped_str(render, s), true);
  const bool markup = s.string().markup;
  return render.text(replaced(render, s.text(), str(render, p[0]),
                              markup ? escaped_str(render, p[1]) : str(render, p[1]), count),
                     markup);
}

Value indent(Render& render, const Value& input, Arguments& a) {
  const Parameters p("indent", a, {"width", "first", "blank"});
  if (!input.is_string()) {
    if (input.is_undefined()) fail(input.undefined().message());
    fail(fmt::format("unsupported operand type(s) for +=: '{}' and 'str'", type_name(input)));
  }
  const Value width = p.get(0, Value::integer(4));
  std::string by;
  if (width.is_string()) {
    by = width.text();
  } else {
    const Int spaces = std::max<Int>(index_of(width, "indent"), 0);
    check_product(render, spaces);
    by.assign(static_cast<size_t>(spaces), ' ');
  }
  const bool first = p.has(1) && truthy(render, p[1]);
  const bool blank = p.has(2) && truthy(render, p[2]);
  render.meter.work(input.text().size());
  const std::string with_end = input.text() + "\n";
  std::string out = first ? by : "";
  bool at_first = true;
  for (const std::string_view line : split_lines(with_end, false)) {
    if (!at_first) {
      out.push_back('\n');
      if (blank || !line.empty()) out += by;
    }
    at_first = false;
    out.append(line);
    render.meter.check_size(out.size());
  }
  return derived(render, input, std::move(out));
}

Value truncate(Render& render, const Value& input, Arguments& a) {
  const Parameters p("truncate", a, {"length", "killwords", "end", "leeway"});
  const Int length = p.has(0) ? index_of(p[0], "truncate") : 255;
  const Value end = p.has(2) ? p[2] : render.text("...");
  const Int leeway = p.has(3) && !p[3].is_none() ? index_of(p[3], "truncate") : 5;
  must_be_text(end, "truncate");
  const auto end_length = static_cast<Int>(end.string().length);
  if (length < end_length) {
    fail(fmt::format("expected length >= {}, got less", end.string().length));
  }
  if (leeway < 0) fail("expected leeway >= 0, got less");
  const auto input_length = length_of(input);
  if (input_length && *input_length - length <= leeway) return input;
  const std::string& s = must_be_text(input, "truncate");
  std::string kept = s.substr(0, utf8_offset(s, static_cast<size_t>(length - end_length)));
  if (!p.has(1) || !truthy(render, p[1])) kept = kept.substr(0, kept.rfind(' '));
  return binary(render, Op::kAdd, derived(render, input, std::move(kept)), end);
}

Value wordwrap(Render& render, const Value& input, Arguments& a) {
  const Parameters p("wordwrap", a,
                     {"width", "break_long_words", "wrapstring", "break_on_hyphens"});
  WrapStyle style;
  if (p.has(0)) style.width = index_of(p[0], "wordwrap");
  if (p.has(1)) style.break_long_words = truthy(render, p[1]);
  if (p.has(3)) style.break_on_hyphens = truthy(render, p[3]);
  const std::string join =
      p.has(2) && !p[2].is_none() ? must_be_text(p[2], "wordwrap") : std::string("\n");
  const std::string& s = must_be_text(input, "wordwrap");
  render.meter.work(s.size());
  std::string out;
  bool first = true;
  for (const std::string_view line : split_lines(s, false)) {
    std::vector<std::string> wrapped = wrap_text(render, line, style);
    if (wrapped.empty()) wrapped.emplace_back();
    for (const std::string& w : wrapped) {
      if (!first) out += join;
      first = false;
      out += w;
      render.meter.check_size(out.size());
    }
  }
  return render.text(std::move(out));
}

Value wordcount(Render& render, const Value& input, Arguments& a) {
  Parameters("wordcount", a, {});
  const std::string s = str(render, input);
  render.meter.work(s.size());
  Int words = 0;
  bool inside = false;
  for (size_t at = 0; at < s.size();) {
    const char32_t c = utf8_next(s, &at);
    const bool word = c == '_' || is_alnum(c);
    if (word && !inside) ++words;
    inside = word;
  }
  return Value::integer(words);
}

Value format(Render& render, const Value& input, Arguments& a) {
  if (!a.positional.empty() && !a.named.empty()) {
    fail("can't handle positional and keyword arguments at the same time");
  }
  const Value s = soft_str(render, input);
  if (a.named.empty()) return percent_format(render, s, render.tuple(std::move(a.positional)));
  DictBuilder named(render);
  for (auto& [name, v] : a.named) named.set(render.text(name), std::move(v));
  return percent_format(render, s, named.take());
}

Value string(Render& render, const Value& input, Arguments& a) {
  Parameters("string", a, {});
  return soft_str(render, input);
}

Value tojson(Render& render, const Value& input, Arguments& a) {
  const Parameters p("tojson", a, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ascii = p.has(0) && truthy(render, p[0]);
  if (p.has(1) && !p[1].is_none()) {
    if (p[1].is_string()) {
      style.indent = p[1].text();
    } else {
      const Int spaces = std::max<Int>(index_of(p[1], "indent"), 0);
      check_product(render, spaces);
      style.indent = std::string(static_cast<size_t>(spaces), ' ');
    }
    style.item_separator = ",";
  }
  if (p.has(2) && !p[2].is_none()) {
    const std::vector<Value> separators = to_vector(render, p[2]);
    if (separators.size() != 2) fail("separators: expected two strings");
    style.item_separator = must_be_text(separators[0], "separators");
    style.key_separator = must_be_text(separators[1], "separators");
  }
  style.sort_keys = p.has(3) && truthy(render, p[3]);
  return render.text(to_json(render, input, style));
}

}  // namespace

void add_text_filters(FilterTable* table) {
  table->insert({{"capitalize", converted<to_capitalized>},
                 {"center", center},
                 {"format", format},
                 {"indent", indent},
                 {"lower", converted<to_lower>},
                 {"replace", replace},
                 {"string", string},
                 {"title", converted<title_words>},
                 {"tojson", tojson},
                 {"trim", trim},
                 {"truncate", truncate},
                 {"upper", converted<to_upper>},
                 {"wordcount", wordcount},
                 {"wordwrap", wordwrap}});
}

}  // namespace deltad::jinja
