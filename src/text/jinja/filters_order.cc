// Filters that compare: sort, groupby, unique, min, max, sum, dictsort.
#include <algorithm>
#include <numeric>

#include "text/jinja/arguments.h"
#include "text/jinja/compare.h"
#include "text/jinja/filters.h"
#include "text/jinja/iteration.h"
#include "text/jinja/operators.h"
#include "text/jinja/repr.h"

namespace deltad::jinja {

namespace {

// The order in which to take items so that their keys ascend (or descend); stable.
std::vector<size_t> sorted_order(Render& render, const std::vector<Value>& keys, bool reverse) {
  std::vector<size_t> order(keys.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return reverse ? ordered(render, Order::kLess, keys[b], keys[a])
                   : ordered(render, Order::kLess, keys[a], keys[b]);
  });
  return order;
}

std::vector<Value> taken(const std::vector<Value>& items, const std::vector<size_t>& order) {
  std::vector<Value> out;
  out.reserve(items.size());
  for (const size_t i : order) out.push_back(items[i]);
  return out;
}

bool flag(Render& render, const Parameters& p, size_t i) {
  return p.has(i) && truthy(render, p[i]);
}

Value sort(Render& render, const Value& input, Arguments& a) {
  const Parameters p("sort", a, {"reverse", "case_sensitive", "attribute"});
  const bool case_sensitive = flag(render, p, 1);
  std::vector<AttributePath> paths;
  if (p.has(2) && p[2].is_string()) {
    const std::string& all = p[2].text();
    for (size_t at = 0; at <= all.size();) {
      const size_t end = std::min(all.find(',', at), all.size());
      paths.emplace_back(render, render.text(all.substr(at, end - at)));
      at = end + 1;
    }
  } else {
    paths.emplace_back(render, p.get(2, Value()));
  }
  const std::vector<Value> items = to_vector(render, input);
  std::vector<Value> keys;  // lists: compared item by item, and equal items are never ordered
  keys.reserve(items.size());
  for (const Value& item : items) {
    std::vector<Value> key;
    for (const AttributePath& path : paths) {
      key.push_back(folded(render, path.get(render, item), case_sensitive));
    }
    keys.push_back(render.list(std::move(key)));
  }
  return render.list(taken(items, sorted_order(render, keys, flag(render, p, 0))));
}

Value dictsort(Render& render, const Value& input, Arguments& a) {
  const Parameters p("dictsort", a, {"case_sensitive", "by", "reverse"});
  const std::string by = p.has(1) ? str(render, p[1]) : "key";
  if (by != "key" && by != "value") fail("You can only sort by either \"key\" or \"value\"");
  if (input.is_undefined()) fail(input.undefined().message());
  if (!input.is(Kind::kDict)) {
    fail(fmt::format("'{}' object has no attribute 'items'", type_name(input)));
  }
  const bool case_sensitive = flag(render, p, 0);
  std::vector<Value> pairs, keys;
  for (const auto& [k, v] : input.dict().entries) {
    render.meter.step();
    pairs.push_back(render.pair(k, v));
    keys.push_back(folded(render, by == "key" ? k : v, case_sensitive));
  }
  return render.list(taken(pairs, sorted_order(render, keys, flag(render, p, 2))));
}

Value groupby(Render& render, const Value& input, Arguments& a) {
  const Parameters p("groupby", a, {"attribute", "default", "case_sensitive"}, 1);
  const AttributePath path(render, p[0]);
  const Value otherwise = p.get(1, Value());
  const bool case_sensitive = flag(render, p, 2);
  const std::vector<Value> items = to_vector(render, input);
  std::vector<Value> keys;
  for (const Value& item : items) {
    keys.push_back(folded(render, path.get(render, item, otherwise), case_sensitive));
  }
  const std::vector<size_t> order = sorted_order(render, keys, false);
  std::vector<Value> groups;
  for (size_t i = 0; i < order.size();) {
    std::vector<Value> members;
    const size_t start = i;
    for (; i < order.size() && equal(render, keys[order[i]], keys[order[start]]); ++i) {
      members.push_back(items[order[i]]);
    }
    if (i == start) members.push_back(items[order[i++]]);  // not equal to itself: NaN
    std::vector<Value> group;
    group.push_back(path.get(render, items[order[start]], otherwise));
    group.push_back(render.list(std::move(members)));
    groups.push_back(render.make<List>(Kind::kTuple, std::move(group), true));
  }
  return render.list(std::move(groups));
}

Value unique(Render& render, const Value& input, Arguments& a) {
  const Parameters p("unique", a, {"case_sensitive", "attribute"});
  const AttributePath path(render, p.get(1, Value()));
  const bool case_sensitive = flag(render, p, 0);
  std::unordered_multimap<size_t, Value> seen;
  std::vector<Value> kept;
  Walk walk(render, input);
  Value item;
  while (walk.next(&item)) {
    Value key = folded(render, path.get(render, item), case_sensitive);
    const size_t h = hash(render, key);
    bool found = false;
    for (auto [it, end] = seen.equal_range(h); it != end && !found; ++it) {
      found = equal(render, it->second, key);
    }
    if (found) continue;
    seen.emplace(h, std::move(key));
    kept.push_back(item);
  }
  return over(render, "sync_do_unique", std::move(kept));
}

Value extreme(Render& render, const Value& input, Arguments& a, std::string_view name,
              Order better) {
  const Parameters p(name, a, {"case_sensitive", "attribute"});
  const AttributePath path(render, p.get(1, Value()));
  const bool case_sensitive = flag(render, p, 0);
  Walk walk(render, input);
  Value best, item;
  if (!walk.next(&best)) return render.undefined_hint("No aggregated item, sequence was empty.");
  Value best_key = folded(render, path.get(render, best), case_sensitive);
  while (walk.next(&item)) {
    Value key = folded(render, path.get(render, item), case_sensitive);
    if (!ordered(render, better, key, best_key)) continue;
    best = item;
    best_key = std::move(key);
  }
  return best;
}

Value min(Render& render, const Value& input, Arguments& a) {
  return extreme(render, input, a, "min", Order::kLess);
}
Value max(Render& render, const Value& input, Arguments& a) {
  return extreme(render, input, a, "max", Order::kGreater);
}

Value sum(Render& render, const Value& input, Arguments& a) {
  const Parameters p("sum", a, {"attribute", "start"});
  const AttributePath path(render, p.get(0, Value()));
  Value total = p.get(1, Value::integer(0));
  if (total.is_string()) fail("sum() can't sum strings [use ''.join(seq) instead]");
  Walk walk(render, input);
  Value item;
  while (walk.next(&item)) {
    total = binary(render, Op::kAdd, total, path.get(render, item));
  }
  return total;
}

}  // namespace

void add_order_filters(FilterTable* table) {
  table->insert({{"dictsort", dictsort},
                 {"groupby", groupby},
                 {"max", max},
                 {"min", min},
                 {"sort", sort},
                 {"sum", sum},
                 {"unique", unique}});
}

}  // namespace deltad::jinja
