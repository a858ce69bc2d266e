#include "text/jinja/compare.h"

#include <algorithm>
#include <cmath>

#include "text/jinja/iteration.h"
#include "text/jinja/repr.h"

namespace deltad::jinja {

namespace {

// -1, 0, 1; or 2 where one is not a number.
int compare_numbers(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) {
    const Int x = a.as_int(), y = b.as_int();
    return x < y ? -1 : x > y ? 1 : 0;
  }
  const double x = a.as_float(), y = b.as_float();
  if (std::isnan(x) || std::isnan(y)) return 2;
  if (x != y) return x < y ? -1 : 1;
  // Equal as doubles: an integer may have been rounded.
  const Value& whole = a.is_integral() ? a : b;
  const Value& real = a.is_integral() ? b : a;
  if (!whole.is_integral() || std::abs(real.as_float()) >= 0x1p126) return 0;
  const Int i = whole.as_int(), r = static_cast<Int>(real.as_float());
  const int order = i < r ? -1 : i > r ? 1 : 0;
  return a.is_integral() ? order : -order;
}

bool holds(Order order, int c) {
  switch (order) {
    case Order::kLess:
      return c == -1;
    case Order::kLessEqual:
      return c == -1 || c == 0;
    case Order::kGreater:
      return c == 1;
    case Order::kGreaterEqual:
      return c == 1 || c == 0;
  }
  return false;
}

const char* order_text(Order order) {
  switch (order) {
    case Order::kLess:
      return "<";
    case Order::kLessEqual:
      return "<=";
    case Order::kGreater:
      return ">";
    case Order::kGreaterEqual:
      return ">=";
  }
  return "";
}

bool equal_items(Render& render, const std::vector<Value>& a, const std::vector<Value>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!equal(render, a[i], b[i])) return false;
  }
  return true;
}

bool equal_dicts(Render& render, const Dict& a, const Dict& b) {
  if (a.entries.size() != b.entries.size()) return false;
  for (const auto& [key, value] : a.entries) {
    const Value* other = find(render, b, key);
    if (other == nullptr || !equal(render, value, *other)) return false;
  }
  return true;
}

// keys() and items() are equal as sets; values() only to themselves.
bool equal_views(Render& render, const View& a, const View& b) {
  if (a.part != b.part || a.part == View::Part::kValues) return false;
  if (a.part == View::Part::kItems) return equal_dicts(render, a.dict.dict(), b.dict.dict());
  if (a.dict.dict().entries.size() != b.dict.dict().entries.size()) return false;
  for (const auto& [key, value] : a.dict.dict().entries) {
    if (find(render, b.dict.dict(), key) == nullptr) return false;
  }
  return true;
}

bool equal_ranges(const Range& a, const Range& b) {
  if (a.length != b.length) return false;
  if (a.length == 0) return true;
  return a.start == b.start && (a.length == 1 || a.step == b.step);
}

bool range_contains(const Range& range, const Value& v) {
  if (!v.is_number()) return false;
  if (v.is(Kind::kFloat) &&
      (v.as_float() != std::trunc(v.as_float()) || !(std::abs(v.as_float()) < 0x1p100))) {
    return false;
  }
  const Int i = v.is_integral() ? v.as_int() : static_cast<Int>(v.as_float());
  if (range.step > 0 ? (i < range.start || i >= range.stop)
                     : (i > range.start || i <= range.stop)) {
    return false;
  }
  return (i - range.start) % range.step == 0;
}

}  // namespace

bool equal(Render& render, const Value& a, const Value& b) {
  const Level level(&render.meter.nesting, render.meter.max_nesting(), "values");
  render.meter.step();
  if (a.is_number() && b.is_number()) return compare_numbers(a, b) == 0;
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kString:
      render.meter.work(a.text().size());
      return a.text() == b.text();
    case Kind::kList:
    case Kind::kTuple:
      return a.same(b) || equal_items(render, a.items(), b.items());
    case Kind::kDict:
      return a.same(b) || equal_dicts(render, a.dict(), b.dict());
    case Kind::kRange:
      return equal_ranges(a.range(), b.range());
    case Kind::kView:
      return a.same(b) || equal_views(render, a.view(), b.view());
    case Kind::kUndefined:
      return true;
    default:
      return a.same(b);
  }
}

bool ordered(Render& render, Order order, const Value& a, const Value& b) {
  const Level level(&render.meter.nesting, render.meter.max_nesting(), "values");
  render.meter.step();
  if (a.is_number() && b.is_number()) return holds(order, compare_numbers(a, b));
  if (a.is_undefined()) fail(a.undefined().message());
  if (b.is_undefined()) fail(b.undefined().message());
  if (a.kind() == b.kind() && a.is_string()) {
    render.meter.work(std::min(a.text().size(), b.text().size()));
    const int c = a.text().compare(b.text());  // UTF-8 keeps the order of code points
    return holds(order, c < 0 ? -1 : c > 0 ? 1 : 0);
  }
  if (a.kind() == b.kind() && a.is_sequence()) {
    const auto& x = a.items();
    const auto& y = b.items();
    for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
      if (!equal(render, x[i], y[i])) return ordered(render, order, x[i], y[i]);
    }
    return holds(order, x.size() < y.size() ? -1 : x.size() > y.size() ? 1 : 0);
  }
  fail(fmt::format("'{}' not supported between instances of '{}' and '{}'", order_text(order),
                   type_name(a), type_name(b)));
}

bool contains(Render& render, const Value& container, const Value& a) {
  switch (container.kind()) {
    case Kind::kString:
      if (!a.is_string()) {
        fail(fmt::format("'in <string>' requires string as left operand, not {}", type_name(a)));
      }
      render.meter.work(container.text().size());
      return container.text().find(a.text()) != std::string::npos;
    case Kind::kDict:
      return find(render, container.dict(), a) != nullptr;
    case Kind::kRange:
      return range_contains(container.range(), a);
    case Kind::kView:
      if (container.view().part == View::Part::kKeys) {
        return find(render, container.view().dict.dict(), a) != nullptr;
      }
      break;
    default:
      break;
  }
  if (!iterable(container)) {
    fail(fmt::format("argument of type '{}' is not iterable", type_name(container)));
  }
  Walk walk(render, container);
  Value item;
  while (walk.next(&item)) {
    if (item.same(a) || equal(render, item, a)) return true;
  }
  return false;
}

bool hashable(Render& render, const Value& v) {
  if (v.is(Kind::kList) || v.is(Kind::kDict) || v.is(Kind::kView)) return false;
  if (!v.is(Kind::kTuple)) return true;
  render.meter.step(static_cast<int64_t>(v.items().size()));
  return std::all_of(v.items().begin(), v.items().end(),
                     [&](const Value& item) { return hashable(render, item); });
}

size_t hash_text(std::string_view s) { return std::hash<std::string_view>()(s); }

size_t hash(Render& render, const Value& v) {
  render.meter.step();
  switch (v.kind()) {
    case Kind::kString:
      render.meter.work(v.text().size());
      return hash_text(v.text());
    case Kind::kBool:
    case Kind::kInt:
      return std::hash<double>()(v.as_float());  // equal numbers hash alike
    case Kind::kFloat:
      return std::hash<double>()(v.as_float());
    case Kind::kTuple: {
      size_t h = 0x345678;
      for (const Value& item : v.items()) h = h * 1000003 ^ hash(render, item);
      return h;
    }
    case Kind::kList:
    case Kind::kDict:
      fail(fmt::format("unhashable type: '{}'", type_name(v)));
    case Kind::kView:
      if (v.view().part != View::Part::kValues) {
        fail(fmt::format("unhashable type: '{}'", type_name(v)));
      }
      return std::hash<const void*>()(v.object());
    case Kind::kRange:
      return static_cast<size_t>(v.range().length);
    case Kind::kNone:
      return 1;
    case Kind::kMissing:
    case Kind::kUndefined:
      return 2;
    case Kind::kIterator:
    case Kind::kObject:
      return std::hash<const void*>()(v.object());
  }
  return 0;
}

const Value* find(Render& render, const Dict& dict, const Value& key) {
  if (key.is_string()) {
    render.meter.work(key.text().size());
    return find(dict, key.text());
  }
  const size_t h = hash(render, key);
  if (dict.index.empty()) {
    for (const auto& [k, v] : dict.entries) {
      if (equal(render, k, key)) return &v;
    }
    return nullptr;
  }
  for (auto [it, end] = dict.index.equal_range(h); it != end; ++it) {
    const auto& [k, v] = dict.entries[it->second];
    if (equal(render, k, key)) return &v;
  }
  return nullptr;
}

const Value* find(const Dict& dict, std::string_view key) {
  const auto matches = [&](const Value& k) { return k.is_string() && k.text() == key; };
  if (dict.index.empty()) {
    for (const auto& [k, v] : dict.entries) {
      if (matches(k)) return &v;
    }
    return nullptr;
  }
  for (auto [it, end] = dict.index.equal_range(hash_text(key)); it != end; ++it) {
    const auto& [k, v] = dict.entries[it->second];
    if (matches(k)) return &v;
  }
  return nullptr;
}

void DictBuilder::set(Value key, Value value) {
  render_.meter.step();
  const size_t h = hash(render_, key);
  if (index_.empty()) {
    for (auto& [k, v] : entries_) {
      if (equal(render_, k, key)) {
        v = std::move(value);
        return;
      }
    }
  } else {
    for (auto [it, end] = index_.equal_range(h); it != end; ++it) {
      auto& [k, v] = entries_[it->second];
      if (equal(render_, k, key)) {
        v = std::move(value);
        return;
      }
    }
  }
  entries_.emplace_back(std::move(key), std::move(value));
  if (!index_.empty()) {
    index_.emplace(h, entries_.size() - 1);
  } else if (entries_.size() > kIndexedDictSize) {
    for (size_t i = 0; i < entries_.size(); ++i) {
      index_.emplace(hash(render_, entries_[i].first), i);
    }
  }
}

void DictBuilder::set_all(const Dict& other) {
  for (const auto& [k, v] : other.entries) set(k, v);
}

Value DictBuilder::take() {
  return render_.make<Dict>(Kind::kDict, std::move(entries_), std::move(index_));
}

}  // namespace deltad::jinja
