#include "text/jinja/attributes.h"

#include <algorithm>
#include <array>

#include "text/jinja/compare.h"
#include "text/jinja/methods.h"
#include "text/jinja/repr.h"
#include "text/jinja/unicode.h"

namespace deltad::jinja {

namespace {

class BoundMethod final : public Native {
 public:
  BoundMethod(Meter* meter, const Value& self, std::string_view name, Method method)
      : Native(meter, sizeof(BoundMethod), self.depth() + 1),
        self_(self),
        name_(name),
        method_(method) {}
  std::string type_name() const override { return "builtin_function_or_method"; }
  std::string repr(Render&) override {
    return address_text(
        fmt::format("built-in method {} of {} object", name_, jinja::type_name(self_)), this);
  }
  bool callable() const override { return true; }
  Value call(Render& render, Arguments arguments) override {
    return method_(render, self_, arguments);
  }

 private:
  const Value self_;
  const std::string name_;
  const Method method_;
};

// Names that every object of Python has, or all of a group: reached, but refused.
constexpr std::array<std::string_view, 24> kOfAll = {
    "__class__",   "__delattr__", "__dir__",           "__doc__",         "__eq__",
    "__format__",  "__ge__",      "__getattribute__",  "__getstate__",    "__gt__",
    "__hash__",    "__init__",    "__init_subclass__", "__le__",          "__lt__",
    "__ne__",      "__new__",     "__reduce__",        "__reduce_ex__",   "__repr__",
    "__setattr__", "__sizeof__",  "__str__",           "__subclasshook__"};
constexpr std::array<std::string_view, 6> kOfFunctions = {"__module__",  "__call__",    "__dict__",
                                                          "__weakref__", "__globals__", "__code__"};
constexpr std::array<std::string_view, 22> kOfContainers = {
    "__len__",  "__iter__",          "__getitem__", "__contains__", "__add__",     "__mul__",
    "__rmul__", "__mod__",           "__rmod__",    "__reversed__", "__setitem__", "__delitem__",
    "__or__",   "__ror__",           "__ior__",     "__iadd__",     "__imul__",    "__getnewargs__",
    "__bool__", "__class_getitem__", "__next__",    "__index__"};

template <size_t N>
bool listed(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool is_dunder(std::string_view name) {
  return name.size() > 4 && name.substr(0, 2) == "__" && name.substr(name.size() - 2) == "__";
}

bool has_internal(const Value& object, std::string_view name) {
  if (!is_dunder(name)) return false;
  if (listed(kOfAll, name)) return true;
  if (object.is(Kind::kObject)) return listed(kOfFunctions, name);
  if (object.is_undefined() && (name == "__module__" || name == "__call__")) return true;
  return !object.is_none() && !object.is_number() && listed(kOfContainers, name);
}

Value unsafe(Render& render, const Value& object, std::string_view name) {
  return render.undefined_hint(
      fmt::format("access to attribute '{}' of '{}' object is unsafe.", name, type_name(object)));
}

// getattr(object, name) behind the sandbox; kMissing where Python would raise AttributeError.
Value python_attribute(Render& render, const Value& object, const std::string& name) {
  if (object.is(Kind::kObject)) {
    Value v = object.native().attribute(render, name);
    if (!v.is_missing()) return v;
  }
  if (has_internal(object, name)) return unsafe(render, object, name);
  if (object.is_undefined()) {
    if (is_dunder(name)) return Value::missing();
    fail(object.undefined().message());
  }
  if (changes_object(object, name)) return unsafe(render, object, name);
  if (const Method method = find_method(object, name)) {
    return render.make<BoundMethod>(Kind::kObject, object, name, method);
  }
  return property(render, object, name);
}

// object[key]; kMissing where Python would raise TypeError or LookupError.
Value python_item(Render& render, const Value& object, const Value& key) {
  const auto place = [&](Int length) -> Int {
    if (!key.is_integral()) return -1;
    const Int i = key.as_int();
    const Int at = i < 0 ? i + length : i;
    return at >= 0 && at < length ? at : -1;
  };
  switch (object.kind()) {
    case Kind::kString: {
      const String& s = object.string();
      const Int at = place(static_cast<Int>(s.length));
      if (at < 0) return Value::missing();
      const auto index = static_cast<size_t>(at);
      const size_t start = s.length == s.text.size() ? index : utf8_offset(s.text, index);
      render.meter.work(start);
      size_t end = start;
      utf8_next(s.text, &end);
      return render.text(s.text.substr(start, end - start), s.markup);
    }
    case Kind::kList:
    case Kind::kTuple: {
      const Int at = place(static_cast<Int>(object.items().size()));
      return at < 0 ? Value::missing() : object.items()[static_cast<size_t>(at)];
    }
    case Kind::kRange: {
      const Int at = place(object.range().length);
      return at < 0 ? Value::missing() : Value::integer(object.range().at(at));
    }
    case Kind::kDict: {
      if (!hashable(render, key)) return Value::missing();
      const Value* v = find(render, object.dict(), key);
      return v == nullptr ? Value::missing() : *v;
    }
    case Kind::kUndefined:
      fail(object.undefined().message());
    case Kind::kObject:
      return object.native().item(render, key);
    default:
      return Value::missing();
  }
}

}  // namespace

Value get_attribute(Render& render, const Value& object, const Value& name) {
  // Most names are keys of dicts: no method has that name.
  Value v = python_attribute(render, object, name.text());
  if (!v.is_missing()) return v;
  v = python_item(render, object, name);
  return v.is_missing() ? render.undefined_member(object, name) : v;
}

Value get_item(Render& render, const Value& object, const Value& key) {
  Value v = python_item(render, object, key);
  if (v.is_missing() && key.is_string()) v = python_attribute(render, object, key.text());
  return v.is_missing() ? render.undefined_member(object, key) : v;
}

Value attribute_only(Render& render, const Value& object, const Value& name) {
  if (!name.is_string()) fail("attribute name must be string, not '" + type_name(name) + "'");
  Value v = python_attribute(render, object, name.text());
  return v.is_missing() ? render.undefined_member(object, name) : v;
}

}  // namespace deltad::jinja
