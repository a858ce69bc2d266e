// Methods of str: searching, splitting, joining.
#include <algorithm>

#include "text/jinja/arguments.h"
#include "text/jinja/iteration.h"
#include "text/jinja/operators.h"
#include "text/jinja/repr.h"
#include "text/jinja/string_methods.h"
#include "text/jinja/unicode.h"

namespace deltad::jinja {

namespace {

const std::string& text_of(const Value& v, std::string_view method) {
  if (v.is_undefined()) fail(v.undefined().message());
  if (!v.is_string()) fail(fmt::format("{}: must be str, not {}", method, type_name(v)));
  return v.text();
}

// self[start:end] of the methods that search, in bytes and code points.
struct Part {
  std::string_view text;
  size_t first;  // index of its first code point in the whole
  bool valid;    // not beyond the end
};

Part part_of(Render& render, const Value& self, const Parameters& p) {
  const String& s = self.string();
  render.meter.work(s.text.size());
  const auto length = static_cast<Int>(s.length);
  const auto place = [&](size_t i, Int otherwise) {
    if (!p.has(i) || p[i].is_none()) return otherwise;
    if (!p[i].is_integral()) {
      fail("slice indices must be integers or None or have an __index__ method");
    }
    const Int at = p[i].as_int();
    return at < 0 ? std::max<Int>(at + length, 0) : at;
  };
  const Int start = place(1, 0);
  const Int end = std::min(place(2, length), length);
  if (start > length || end < start) return {{}, 0, false};
  const std::string_view whole = s.text;
  const auto offset = [&](Int i) {
    return s.length == s.text.size() ? static_cast<size_t>(i)
                                     : utf8_offset(whole, static_cast<size_t>(i));
  };
  const size_t from = offset(start);
  return {whole.substr(from, offset(end) - from), static_cast<size_t>(start), true};
}

Int search(Render& render, const Value& self, Arguments& a, std::string_view name, bool last) {
  const Parameters p(name, a, {"/sub", "/start", "/end"}, 1);
  const std::string& sub = text_of(p[0], name);
  const Part part = part_of(render, self, p);
  if (!part.valid) return -1;
  const size_t at = last ? part.text.rfind(sub) : part.text.find(sub);
  if (at == std::string_view::npos) return -1;
  return static_cast<Int>(part.first + utf8_length(part.text.substr(0, at)));
}

bool affix(Render& render, const Value& self, Arguments& a, std::string_view name, bool end) {
  const Parameters p(name, a, {"/affix", "/start", "/end"}, 1);
  const Part part = part_of(render, self, p);
  const auto matches = [&](const Value& v) {
    const std::string& s = text_of(v, name);
    if (!part.valid || s.size() > part.text.size()) return false;
    return part.text.compare(end ? part.text.size() - s.size() : 0, s.size(), s) == 0;
  };
  if (!p[0].is(Kind::kTuple)) return matches(p[0]);
  render.meter.step(static_cast<int64_t>(p[0].items().size()));
  return std::any_of(p[0].items().begin(), p[0].items().end(), matches);
}

Value pieces(Render& render, const Value& self, const std::vector<std::string_view>& parts) {
  std::vector<Value> items;
  items.reserve(parts.size());
  for (const std::string_view s : parts) {
    render.meter.step();
    items.push_back(derived(render, self, std::string(s)));
  }
  return render.list(std::move(items));
}

std::vector<std::string_view> split_at(std::string_view s, const std::string& separator, Int max,
                                       bool from_end) {
  if (separator.empty()) fail("empty separator");
  std::vector<std::string_view> parts;
  while (max < 0 || static_cast<Int>(parts.size()) < max) {
    const size_t at = from_end ? s.rfind(separator) : s.find(separator);
    if (at == std::string_view::npos) break;
    parts.push_back(from_end ? s.substr(at + separator.size()) : s.substr(0, at));
    s = from_end ? s.substr(0, at) : s.substr(at + separator.size());
  }
  parts.push_back(s);
  if (from_end) std::reverse(parts.begin(), parts.end());
  return parts;
}

Value split(Render& render, const Value& self, Arguments& a, std::string_view name, bool from_end) {
  const Parameters p(name, a, {"sep", "maxsplit"});
  const int max = p.has(1) ? count_of(p[1], "maxsplit") : -1;
  render.meter.work(self.text().size());
  if (!p.has(0) || p[0].is_none()) {
    return pieces(render, self,
                  from_end ? split_space_right(self.text(), max) : split_space(self.text(), max));
  }
  if (p[0].is_undefined()) fail(p[0].undefined().message());
  if (!p[0].is_string()) fail(fmt::format("must be str or None, not {}", type_name(p[0])));
  return pieces(render, self, split_at(self.text(), p[0].text(), max, from_end));
}

Value partition(Render& render, const Value& self, Arguments& a, bool from_end) {
  const Parameters p(from_end ? "rpartition" : "partition", a, {"/sep"}, 1);
  const std::string& separator = text_of(p[0], "partition");
  if (separator.empty()) fail("empty separator");
  const std::string& s = self.text();
  render.meter.work(s.size());
  const size_t at = from_end ? s.rfind(separator) : s.find(separator);
  std::string before, middle, after;
  if (at == std::string::npos) {
    (from_end ? after : before) = s;
  } else {
    before = s.substr(0, at);
    middle = separator;
    after = s.substr(at + separator.size());
  }
  return render.tuple({derived(render, self, std::move(before)),
                       derived(render, self, std::move(middle)),
                       derived(render, self, std::move(after))});
}

}  // namespace

Value derived(Render& render, const Value& self, std::string text) {
  return render.text(std::move(text), self.string().markup);
}

std::string inserted(Render& render, const Value& self, const Value& v, std::string_view method) {
  return self.string().markup ? escaped_str(render, v) : text_of(v, method);
}

std::string replaced(Render& render, const std::string& s, const std::string& old,
                     const std::string& fresh, Int count) {
  render.meter.work(s.size());
  std::string out;
  size_t at = 0;
  const auto append = [&](std::string_view part) {
    render.meter.check_size(out.size() + part.size());
    out.append(part);
  };
  if (old.empty()) {  // before every character, and at the end
    for (; count != 0; --count) {
      append(fresh);
      if (at >= s.size()) break;
      const size_t start = at;
      utf8_next(s, &at);
      append(std::string_view(s).substr(start, at - start));
    }
  }
  while (!old.empty() && count != 0) {
    const size_t found = s.find(old, at);
    if (found == std::string::npos) break;
    append(std::string_view(s).substr(at, found - at));
    append(fresh);
    at = found + old.size();
    --count;
  }
  if (at < s.size()) append(std::string_view(s).substr(at));
  return out;
}

Value str_count(Render& render, const Value& self, Arguments& a) {
  const Parameters p("count", a, {"/sub", "/start", "/end"}, 1);
  const std::string& sub = text_of(p[0], "count");
  const Part part = part_of(render, self, p);
  if (!part.valid) return Value::integer(0);
  if (sub.empty()) return Value::integer(static_cast<Int>(utf8_length(part.text)) + 1);
  Int n = 0;
  for (size_t at = part.text.find(sub); at != std::string_view::npos;
       at = part.text.find(sub, at + sub.size())) {
    ++n;
  }
  return Value::integer(n);
}

Value str_find(Render& render, const Value& self, Arguments& a) {
  return Value::integer(search(render, self, a, "find", false));
}
Value str_rfind(Render& render, const Value& self, Arguments& a) {
  return Value::integer(search(render, self, a, "rfind", true));
}
Value str_index(Render& render, const Value& self, Arguments& a) {
  const Int at = search(render, self, a, "index", false);
  if (at < 0) fail("substring not found");
  return Value::integer(at);
}
Value str_rindex(Render& render, const Value& self, Arguments& a) {
  const Int at = search(render, self, a, "rindex", true);
  if (at < 0) fail("substring not found");
  return Value::integer(at);
}

Value str_startswith(Render& render, const Value& self, Arguments& a) {
  return Value::boolean(affix(render, self, a, "startswith", false));
}
Value str_endswith(Render& render, const Value& self, Arguments& a) {
  return Value::boolean(affix(render, self, a, "endswith", true));
}

Value str_split(Render& render, const Value& self, Arguments& a) {
  return split(render, self, a, "split", false);
}
Value str_rsplit(Render& render, const Value& self, Arguments& a) {
  return split(render, self, a, "rsplit", true);
}

Value str_splitlines(Render& render, const Value& self, Arguments& a) {
  const Parameters p("splitlines", a, {"keepends"});
  render.meter.work(self.text().size());
  return pieces(render, self, split_lines(self.text(), p.has(0) && truthy(render, p[0])));
}

Value str_partition(Render& render, const Value& self, Arguments& a) {
  return partition(render, self, a, false);
}
Value str_rpartition(Render& render, const Value& self, Arguments& a) {
  return partition(render, self, a, true);
}

Value str_join(Render& render, const Value& self, Arguments& a) {
  const Parameters p("join", a, {"/iterable"}, 1);
  std::string out;
  Walk walk(render, p[0]);
  Value item;
  for (size_t i = 0; walk.next(&item); ++i) {
    if (i > 0) out += self.text();
    if (self.string().markup) {
      out += escaped_str(render, item);
    } else if (item.is_string()) {
      out += item.text();
    } else {
      fail(fmt::format("sequence item {}: expected str instance, {} found", i, type_name(item)));
    }
    render.meter.check_size(out.size());
  }
  return derived(render, self, std::move(out));
}

Value str_replace(Render& render, const Value& self, Arguments& a) {
  const Parameters p("replace", a, {"/old", "/new", "/count"}, 2);
  return derived(
      render, self,
      replaced(render, self.text(), text_of(p[0], "replace"),
               inserted(render, self, p[1], "replace"), p.has(2) ? index_of(p[2], "replace") : -1));
}

Value str_removeprefix(Render& render, const Value& self, Arguments& a) {
  const Parameters p("removeprefix", a, {"/prefix"}, 1);
  const std::string& s = self.text();
  const std::string& prefix = text_of(p[0], "removeprefix");
  const bool there = s.compare(0, prefix.size(), prefix) == 0;
  return derived(render, self, there ? s.substr(prefix.size()) : s);
}

Value str_removesuffix(Render& render, const Value& self, Arguments& a) {
  const Parameters p("removesuffix", a, {"/suffix"}, 1);
  const std::string& s = self.text();
  const std::string& suffix = text_of(p[0], "removesuffix");
  const bool there = !suffix.empty() && s.size() >= suffix.size() &&
                     s.compare(s.size() - suffix.size(), suffix.size(), suffix) == 0;
  return derived(render, self, there ? s.substr(0, s.size() - suffix.size()) : s);
}

}  // namespace deltad::jinja
