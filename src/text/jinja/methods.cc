#include "text/jinja/methods.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "text/jinja/arguments.h"
#include "text/jinja/compare.h"
#include "text/jinja/iteration.h"
#include "text/jinja/number_text.h"
#include "text/jinja/operators.h"
#include "text/jinja/repr.h"

namespace deltad::jinja {

namespace {

struct Named {
  std::string_view name;
  Method method;
};

template <size_t N>
Method find_in(const std::array<Named, N>& methods, std::string_view name) {
  for (const Named& m : methods) {
    if (m.name == name) return m.method;
  }
  return nullptr;
}

template <size_t N>
bool listed(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

void no_arguments(std::string_view name, Arguments& a) { Parameters(name, a, {}); }

Value sequence_count(Render& render, const Value& self, Arguments& a) {
  const Parameters p("count", a, {"/value"}, 1);
  Int n = 0;
  Walk walk(render, self);
  Value item;
  while (walk.next(&item)) n += equal(render, item, p[0]) ? 1 : 0;
  return Value::integer(n);
}

Value sequence_index(Render& render, const Value& self, Arguments& a) {
  const Parameters p("index", a, {"/value", "/start", "/stop"}, 1);
  const Value part = self.is(Kind::kRange)
                         ? self
                         : slice(render, self, p.get(1, Value()), p.get(2, Value()), Value());
  const Int length = *length_of(self);
  Int at = p.has(1) ? index_of(p[1], "index") : 0;
  at = at < 0 ? std::max<Int>(at + length, 0) : at;
  if (self.is(Kind::kRange)) at = 0;
  Walk walk(render, part);
  Value item;
  for (; walk.next(&item); ++at) {
    if (equal(render, item, p[0])) return Value::integer(at);
  }
  fail(fmt::format("{} is not in {}", repr(render, p[0]), type_name(self)));
}

Value list_copy(Render&, const Value& self, Arguments& a) {
  no_arguments("copy", a);
  return self;  // nothing can change either
}

Value view(Render& render, const Value& self, View::Part part, std::string_view name,
           Arguments& a) {
  no_arguments(name, a);
  return render.make<View>(Kind::kView, self, part);
}

Value dict_keys(Render& render, const Value& self, Arguments& a) {
  return view(render, self, View::Part::kKeys, "keys", a);
}
Value dict_values(Render& render, const Value& self, Arguments& a) {
  return view(render, self, View::Part::kValues, "values", a);
}
Value dict_items(Render& render, const Value& self, Arguments& a) {
  return view(render, self, View::Part::kItems, "items", a);
}

Value dict_get(Render& render, const Value& self, Arguments& a) {
  const Parameters p("get", a, {"/key", "/default"}, 1);
  const Value* v = find(render, self.dict(), p[0]);
  return v != nullptr ? *v : p.get(1, Value());
}

Value dict_fromkeys(Render& render, const Value&, Arguments& a) {
  const Parameters p("fromkeys", a, {"/iterable", "/value"}, 1);
  DictBuilder builder(render);
  Walk walk(render, p[0]);
  Value key;
  while (walk.next(&key)) builder.set(key, p.get(1, Value()));
  return builder.take();
}

Value bit_length(Render&, const Value& self, Arguments& a) {
  no_arguments("bit_length", a);
  std::string binary = int_text(self.as_int(), 2);
  if (self.as_int() < 0) binary.erase(0, 1);
  return Value::integer(self.as_int() == 0 ? 0 : static_cast<Int>(binary.size()));
}

Value bit_count(Render&, const Value& self, Arguments& a) {
  no_arguments("bit_count", a);
  const std::string binary = int_text(self.as_int(), 2);
  return Value::integer(std::count(binary.begin(), binary.end(), '1'));
}

Value conjugate(Render& render, const Value& self, Arguments& a) {
  no_arguments("conjugate", a);
  return plus(render, self);
}

Value is_integer(Render&, const Value& self, Arguments& a) {
  no_arguments("is_integer", a);
  const double d = self.as_float();
  return Value::boolean(std::isfinite(d) && std::trunc(d) == d);
}

Value as_integer_ratio(Render& render, const Value& self, Arguments& a) {
  no_arguments("as_integer_ratio", a);
  if (self.is_integral()) return render.pair(plus(render, self), Value::integer(1));
  double d = self.as_float();
  if (!std::isfinite(d)) fail("cannot convert Infinity or NaN to integer ratio");
  Int denominator = 1;
  while (d != std::trunc(d)) {
    d *= 2;
    denominator = multiply(denominator, 2);
  }
  return render.pair(Value::integer(float_to_int(d)), Value::integer(denominator));
}

constexpr std::array<Named, 3> kListMethods = {
    {{"count", sequence_count}, {"index", sequence_index}, {"copy", list_copy}}};
constexpr std::array<Named, 2> kTupleMethods = {
    {{"count", sequence_count}, {"index", sequence_index}}};
constexpr std::array<Named, 6> kDictMethods = {{{"get", dict_get},
                                                {"items", dict_items},
                                                {"keys", dict_keys},
                                                {"values", dict_values},
                                                {"copy", list_copy},
                                                {"fromkeys", dict_fromkeys}}};
constexpr std::array<Named, 4> kIntMethods = {{{"bit_length", bit_length},
                                               {"bit_count", bit_count},
                                               {"conjugate", conjugate},
                                               {"as_integer_ratio", as_integer_ratio}}};
constexpr std::array<Named, 3> kFloatMethods = {
    {{"is_integer", is_integer}, {"conjugate", conjugate}, {"as_integer_ratio", as_integer_ratio}}};

}  // namespace

Method find_method(const Value& object, std::string_view name) {
  switch (object.kind()) {
    case Kind::kString:
      return find_string_method(name);
    case Kind::kList:
      return find_in(kListMethods, name);
    case Kind::kTuple:
    case Kind::kRange:
      return find_in(kTupleMethods, name);
    case Kind::kDict:
      return find_in(kDictMethods, name);
    case Kind::kBool:
    case Kind::kInt:
      return find_in(kIntMethods, name);
    case Kind::kFloat:
      return find_in(kFloatMethods, name);
    default:
      return nullptr;
  }
}

bool changes_object(const Value& object, std::string_view name) {
  constexpr std::array<std::string_view, 8> kList = {"append", "clear", "pop",    "reverse",
                                                     "insert", "sort",  "extend", "remove"};
  constexpr std::array<std::string_view, 5> kDict = {"clear", "pop", "popitem", "setdefault",
                                                     "update"};
  if (object.is(Kind::kList)) return listed(kList, name);
  return object.is(Kind::kDict) && listed(kDict, name);
}

Value property(Render& render, const Value& object, std::string_view name) {
  if (object.is_number()) {
    if (name == "real") return plus(render, object);
    if (name == "imag") return object.is_integral() ? Value::integer(0) : Value::real(0);
    if (object.is_integral() && name == "numerator") return plus(render, object);
    if (object.is_integral() && name == "denominator") return Value::integer(1);
  }
  if (object.is(Kind::kRange)) {
    if (name == "start") return Value::integer(object.range().start);
    if (name == "stop") return Value::integer(object.range().stop);
    if (name == "step") return Value::integer(object.range().step);
  }
  if (object.is(Kind::kTuple) && object.list().group) {
    if (name == "grouper") return object.items()[0];
    if (name == "list") return object.items()[1];
  }
  if (object.is(Kind::kView) && name == "mapping") return object.view().dict;
  return Value::missing();
}

}  // namespace deltad::jinja
