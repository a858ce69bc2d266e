// Filters that apply other filters or tests to the items of a sequence: map, select and the like.
#include <memory>

#include "text/jinja/arguments.h"
#include "text/jinja/filters.h"
#include "text/jinja/iteration.h"
#include "text/jinja/repr.h"
#include "text/jinja/tests.h"

namespace deltad::jinja {

namespace {

int depth_of(const Arguments& a) {
  int depth = 0;
  for (const Value& v : a.positional) depth = std::max(depth, v.depth());
  for (const auto& [name, v] : a.named) depth = std::max(depth, v.depth());
  return depth;
}

Value map_attribute(Render& render, const Value& input, Arguments& a) {
  Value attribute, otherwise;
  for (auto& [name, v] : a.named) {
    if (name == "attribute") {
      attribute = v;
    } else if (name == "default") {
      otherwise = v;
    } else {
      fail(fmt::format("Unexpected keyword argument '{}'", name));
    }
  }
  const auto path = std::make_shared<const AttributePath>(render, attribute);
  return lazy(render, "sync_do_map", input, std::max(otherwise.depth(), path->depth()),
              [path, otherwise](Render& r, Value* item) {
                *item = path->get(r, *item, otherwise);
                return true;
              });
}

Value map(Render& render, const Value& input, Arguments& a) {
  if (!truthy(render, input)) return over(render, "sync_do_map", {});
  if (a.positional.empty()) {
    for (const auto& [name, v] : a.named) {
      if (name == "attribute") return map_attribute(render, input, a);
    }
    fail("map requires a filter argument");
  }
  const std::string name = str(render, a.positional[0]);
  const FilterFunction filter = find_filter(name);
  const auto arguments = std::make_shared<Arguments>(std::move(a));
  arguments->positional.erase(arguments->positional.begin());
  return lazy(render, "sync_do_map", input, depth_of(*arguments),
              [filter, name, arguments](Render& r, Value* item) {
                if (filter == nullptr) fail(fmt::format("No filter named '{}'.", name));
                Arguments copy = *arguments;
                *item = filter(r, *item, copy);
                return true;
              });
}

// select, reject, selectattr, rejectattr
Value choose(Render& render, const Value& input, Arguments& a, bool by_attribute, bool wanted) {
  if (!truthy(render, input)) return over(render, "select_or_reject", {});
  const size_t skip = by_attribute ? 1 : 0;
  if (a.positional.size() < skip) fail("Missing parameter for attribute name");
  const auto path =
      std::make_shared<const AttributePath>(render, by_attribute ? a.positional[0] : Value());
  const bool has_test = a.positional.size() > skip;
  const std::string name = has_test ? str(render, a.positional[skip]) : "";
  const TestFunction test = has_test ? find_test(name) : nullptr;
  const auto arguments = std::make_shared<Arguments>(std::move(a));
  arguments->positional.erase(
      arguments->positional.begin(),
      arguments->positional.begin() + static_cast<long>(skip + (has_test ? 1 : 0)));
  return lazy(render, "select_or_reject", input, std::max(depth_of(*arguments), path->depth()),
              [=](Render& r, Value* item) {
                const Value v = path->get(r, *item);
                if (!has_test) return truthy(r, v) == wanted;
                if (test == nullptr) fail(fmt::format("No test named '{}'.", name));
                Arguments copy = *arguments;
                return test(r, v, copy) == wanted;
              });
}

Value select(Render& render, const Value& input, Arguments& a) {
  return choose(render, input, a, false, true);
}
Value reject(Render& render, const Value& input, Arguments& a) {
  return choose(render, input, a, false, false);
}
Value selectattr(Render& render, const Value& input, Arguments& a) {
  return choose(render, input, a, true, true);
}
Value rejectattr(Render& render, const Value& input, Arguments& a) {
  return choose(render, input, a, true, false);
}

}  // namespace

void add_apply_filters(FilterTable* table) {
  table->insert({{"map", map},
                 {"reject", reject},
                 {"rejectattr", rejectattr},
                 {"select", select},
                 {"selectattr", selectattr}});
}

}  // namespace deltad::jinja
