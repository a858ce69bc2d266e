#include "text/jinja/brace_format.h"

#include "text/jinja/attributes.h"
#include "text/jinja/compare.h"
#include "text/jinja/format_spec.h"
#include "text/jinja/number_text.h"
#include "text/jinja/repr.h"

namespace deltad::jinja {

namespace {

bool all_digits(std::string_view s) {
  return !s.empty() && s.find_first_not_of("0123456789") == std::string_view::npos;
}

class BraceFormatter {
 public:
  BraceFormatter(Render& render, bool markup, const std::vector<Value>& positional,
                 const Value& named)
      : render_(render), markup_(markup), positional_(positional), named_(named) {}

  std::string run(std::string_view format, int depth) {
    if (depth > 2) fail("Max string recursion exceeded");
    std::string out;
    for (size_t at = 0; at < format.size();) {
      const char c = format[at];
      if (c != '{' && c != '}') {
        const size_t end = std::min(format.find_first_of("{}", at), format.size());
        out.append(format.substr(at, end - at));
        at = end;
      } else if (at + 1 < format.size() && format[at + 1] == c) {
        out.push_back(c);
        at += 2;
      } else if (c == '}') {
        fail("Single '}' encountered in format string");
      } else {
        ++at;
        out += field(format, &at, depth);
      }
      render_.meter.check_size(out.size());
    }
    return out;
  }

 private:
  // The replacement field that begins at *at, which is moved behind its closing brace.
  std::string field(std::string_view format, size_t* at, int depth) {
    render_.meter.step();
    if (*at >= format.size()) fail("Single '{' encountered in format string");
    size_t end = *at;
    bool in_brackets = false;
    while (end < format.size() &&
           (in_brackets || std::string_view(":!}").find(format[end]) == std::string_view::npos)) {
      if (format[end] == '{') fail("unexpected '{' in field name");
      if (format[end] == '[') in_brackets = true;
      if (format[end] == ']') in_brackets = false;
      ++end;
    }
    const std::string_view name = format.substr(*at, end - *at);
    char conversion = 0;
    if (end < format.size() && format[end] == '!') {
      if (end + 2 >= format.size()) fail("end of string while looking for conversion specifier");
      conversion = format[end + 1];
      end += 2;
      if (format[end] != ':' && format[end] != '}') {
        fail("expected ':' after conversion specifier");
      }
    }
    std::string_view spec;
    if (end < format.size() && format[end] == ':') {
      const size_t start = ++end;
      for (int open = 1; end < format.size(); ++end) {
        if (format[end] == '{') ++open;
        if (format[end] == '}' && --open == 0) break;
      }
      spec = format.substr(start, end - start);
    }
    if (end >= format.size()) fail("expected '}' before end of string");
    *at = end + 1;
    Value v = lookup(name);
    const std::string expanded = run(spec, depth + 1);
    if (conversion != 0) v = render_.text(convert(v, conversion));
    if (!markup_) return format_value(render_, v, expanded);
    if (v.is_string() && v.string().markup) {
      if (!expanded.empty()) fail("Unsupported format specification for Markup.");
      return v.text();
    }
    return escape_html(format_value(render_, v, expanded));
  }

  std::string convert(const Value& v, char conversion) {
    switch (conversion) {
      case 's':
        return str(render_, v);
      case 'r':
        return repr(render_, v);
      case 'a':
        return v.is_string() ? quoted_repr(v.text(), true) : repr(render_, v);
      default:
        fail(fmt::format("Unknown conversion specifier {}", conversion));
    }
  }

  Value first_part(std::string_view name) {
    if (name.empty()) {
      if (next_ < 0) {
        fail("cannot switch from manual field specification to automatic field numbering");
      }
      return at(static_cast<size_t>(next_++));
    }
    if (all_digits(name)) {
      if (next_ > 0) {
        fail("cannot switch from automatic field numbering to manual field specification");
      }
      next_ = -1;
      const auto i = parse_int(name, 10);
      return at(!i || *i > 1000000 ? positional_.size() : static_cast<size_t>(*i));
    }
    const Value key = render_.text(std::string(name));
    if (named_.is(Kind::kDict)) {
      if (const Value* v = find(render_, named_.dict(), key)) return *v;
      fail(quoted_repr(name));
    }
    Value v = get_item(render_, named_, key);
    if (v.is_undefined()) fail(quoted_repr(name));
    return v;
  }

  const Value& at(size_t i) {
    if (i >= positional_.size()) {
      fail(fmt::format("Replacement index {} out of range for positional args tuple", i));
    }
    return positional_[i];
  }

  // name, name.attribute, name[key], and so on.
  Value lookup(std::string_view name) {
    size_t end = std::min(name.find_first_of(".["), name.size());
    Value v = first_part(name.substr(0, end));
    while (end < name.size()) {
      render_.meter.step();
      if (name[end] == '.') {
        const size_t start = ++end;
        end = std::min(name.find_first_of(".[", start), name.size());
        if (end == start) fail("Empty attribute in format string");
        v = get_attribute(render_, v, render_.text(std::string(name.substr(start, end - start))));
      } else if (name[end] == '[') {
        const size_t start = ++end;
        end = name.find(']', start);
        if (end == std::string_view::npos) fail("Missing ']' in format string");
        if (end == start) fail("Empty attribute in format string");
        const std::string_view key = name.substr(start, end - start);
        ++end;
        v = get_item(
            render_, v,
            all_digits(key) ? Value::integer(*parse_int(key, 10)) : render_.text(std::string(key)));
      } else {
        fail("Only '.' or '[' may follow ']' in format field specifier");
      }
    }
    return v;
  }

  Render& render_;
  const bool markup_;
  const std::vector<Value>& positional_;
  const Value& named_;
  int next_ = 0;  // of automatic numbering; -1: fields are numbered by hand
};

}  // namespace

Value str_format(Render& render, const Value& self, Arguments& a) {
  DictBuilder named(render);
  for (const auto& [name, v] : a.named) named.set(render.text(name), v);
  const Value names = named.take();
  BraceFormatter formatter(render, self.string().markup, a.positional, names);
  return render.text(formatter.run(self.text(), 0), self.string().markup);
}

Value str_format_map(Render& render, const Value& self, Arguments& a) {
  if (!a.named.empty()) fail("format_map() takes no keyword arguments");
  if (a.positional.size() != 1) {
    fail(fmt::format("format_map() takes exactly one argument ({} given)", a.positional.size()));
  }
  const std::vector<Value> none;
  BraceFormatter formatter(render, self.string().markup, none, a.positional[0]);
  return render.text(formatter.run(self.text(), 0), self.string().markup);
}

}  // namespace deltad::jinja
