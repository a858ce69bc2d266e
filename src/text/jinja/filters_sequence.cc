// Filters of sequences: lengths, parts, joining.
#include <algorithm>

#include "text/jinja/arguments.h"
#include "text/jinja/attributes.h"
#include "text/jinja/compare.h"
#include "text/jinja/filters.h"
#include "text/jinja/iteration.h"
#include "text/jinja/operators.h"
#include "text/jinja/repr.h"

namespace deltad::jinja {

namespace {

Value length(Render&, const Value& input, Arguments& a) {
  Parameters("length", a, {});
  const auto n = length_of(input);
  if (!n) fail(fmt::format("object of type '{}' has no len()", type_name(input)));
  return Value::integer(*n);
}

Value default_value(Render& render, const Value& input, Arguments& a) {
  const Parameters p("default", a, {"default_value", "boolean"});
  const bool boolean = p.has(1) && truthy(render, p[1]);
  if (!input.is_undefined() && !(boolean && !truthy(render, input))) return input;
  return p.has(0) ? p[0] : render.text("");
}

Value first(Render& render, const Value& input, Arguments& a) {
  Parameters("first", a, {});
  Walk walk(render, input);
  Value item;
  if (walk.next(&item)) return item;
  return render.undefined_hint("No first item, sequence was empty.");
}

const char* reversed_type(const Value& v) {
  switch (v.kind()) {
    case Kind::kList:
      return "list_reverseiterator";
    case Kind::kRange:
      return "range_iterator";
    case Kind::kDict:
      return "dict_reversekeyiterator";
    case Kind::kView:
      return "dict_reverseitemiterator";
    default:
      return "reversed";
  }
}

Value last(Render& render, const Value& input, Arguments& a) {
  Parameters("last", a, {});
  if (input.is(Kind::kIterator) || !iterable(input)) {
    fail(fmt::format("'{}' object is not reversible", type_name(input)));
  }
  const Int n = length_of(input).value_or(0);
  if (n == 0) return render.undefined_hint("No last item, sequence was empty.");
  if (input.is_string() || input.is_sequence() || input.is(Kind::kRange)) {
    return get_item(render, input, Value::integer(-1));
  }
  return to_vector(render, input).back();
}

Value reverse(Render& render, const Value& input, Arguments& a) {
  Parameters("reverse", a, {});
  if (input.is_string()) {
    return slice(render, input, Value(), Value(), Value::integer(-1));
  }
  if (!iterable(input)) fail("argument must be iterable");
  std::vector<Value> items = to_vector(render, input);
  std::reverse(items.begin(), items.end());
  if (input.is(Kind::kIterator)) return render.list(std::move(items));
  return over(render, nullptr, std::move(items), reversed_type(input));
}

Value list(Render& render, const Value& input, Arguments& a) {
  Parameters("list", a, {});
  return render.list(to_vector(render, input));
}

Value items(Render& render, const Value& input, Arguments& a) {
  Parameters("items", a, {});
  if (input.is_undefined()) return over(render, "do_items", {});
  const bool mapping = input.is(Kind::kDict);
  const Value source =
      mapping ? render.make<View>(Kind::kView, input, View::Part::kItems) : render.tuple({Value()});
  return lazy(render, "do_items", source, 0, [mapping](Render&, Value*) {
    if (!mapping) fail("Can only get item pairs from a mapping.");
    return true;
  });
}

Value join(Render& render, const Value& input, Arguments& a) {
  const Parameters p("join", a, {"d", "attribute"});
  const AttributePath path(render, p.get(1, Value()));
  const Value separator = p.has(0) ? p[0] : render.text("");
  const auto safe = [](const Value& v) { return v.is_string() && v.string().markup; };
  bool markup = false;
  std::vector<Value> parts;
  Walk walk(render, input);
  Value item;
  if (render.autoescape) {
    markup = safe(separator);
    while (walk.next(&item)) {
      parts.push_back(path.get(render, item));
      markup = markup || safe(parts.back());
    }
  }
  std::string out;
  const std::string between = markup ? escaped_str(render, separator) : str(render, separator);
  bool at_first = true;
  const auto append = [&](const Value& v) {
    if (!at_first) out += between;
    at_first = false;
    render.meter.check_size(out.size());
    out += markup ? escaped_str(render, v) : str(render, v);
    render.meter.check_size(out.size());
  };
  for (const Value& v : parts) append(v);
  while (!render.autoescape && walk.next(&item)) append(path.get(render, item));
  return render.text(std::move(out), markup);
}

// batch and slice compute at once, where jinja's wait to be walked.
Value batch(Render& render, const Value& input, Arguments& a) {
  const Parameters p("batch", a, {"linecount", "fill_with"}, 1);
  std::vector<Value> batches;
  std::vector<Value> current;
  const Value& count = p[0];
  const auto full = [&] {
    return equal(render, Value::integer(static_cast<Int>(current.size())), count);
  };
  Walk walk(render, input);
  Value item;
  while (walk.next(&item)) {
    if (full()) {
      batches.push_back(render.list(std::move(current)));
      current.clear();
    }
    current.push_back(std::move(item));
  }
  if (!current.empty()) {
    if (p.has(1) && !p[1].is_none()) {
      const Int n = index_of(count, "batch");
      check_product(render, std::max<Int>(n, 0));
      while (static_cast<Int>(current.size()) < n) {
        render.meter.step();
        current.push_back(p[1]);
      }
    }
    batches.push_back(render.list(std::move(current)));
  }
  return over(render, "do_batch", std::move(batches));
}

Value slice_filter(Render& render, const Value& input, Arguments& a) {
  const Parameters p("slice", a, {"slices", "fill_with"}, 1);
  const std::vector<Value> all = to_vector(render, input);
  const Int slices = index_of(p[0], "slice");
  if (slices == 0) fail("integer division or modulo by zero");
  std::vector<Value> parts;
  if (slices > 0) {
    const auto size = static_cast<Int>(all.size());
    const Int each = size / slices, extra = size % slices;
    Int start = 0;
    for (Int i = 0; i < slices; ++i) {
      render.meter.step();
      const Int end = start + each + (i < extra ? 1 : 0);
      std::vector<Value> part(all.begin() + static_cast<long>(start),
                              all.begin() + static_cast<long>(end));
      if (p.has(1) && !p[1].is_none() && i >= extra) part.push_back(p[1]);
      parts.push_back(render.list(std::move(part)));
      start = end;
    }
  }
  return over(render, "sync_do_slice", std::move(parts));
}

Value attr(Render& render, const Value& input, Arguments& a) {
  const Parameters p("attr", a, {"name"}, 1);
  return attribute_only(render, input, p[0]);
}

Value random_item(Render& render, const Value& input, Arguments& a) {
  Parameters("random", a, {});
  const auto n = length_of(input);
  if (!n || input.is(Kind::kDict) || input.is(Kind::kView)) {
    fail(fmt::format("'{}' object is not a sequence", type_name(input)));
  }
  if (*n == 0) return render.undefined_hint("No random item, sequence was empty.");
  // The same render gives the same text, so chance comes from its time alone.
  uint64_t x = static_cast<uint64_t>(render.now) + 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  x ^= x >> 31;
  return get_item(render, input, Value::integer(static_cast<Int>(x) % *n));
}

}  // namespace

void add_sequence_filters(FilterTable* table) {
  table->insert({{"attr", attr},
                 {"batch", batch},
                 {"count", length},
                 {"d", default_value},
                 {"default", default_value},
                 {"first", first},
                 {"items", items},
                 {"join", join},
                 {"last", last},
                 {"length", length},
                 {"list", list},
                 {"random", random_item},
                 {"reverse", reverse},
                 {"slice", slice_filter}});
}

}  // namespace deltad::jinja
