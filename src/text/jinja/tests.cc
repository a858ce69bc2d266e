#include "text/jinja/tests.h"

#include <unordered_map>

#include "text/jinja/arguments.h"
#include "text/jinja/compare.h"
#include "text/jinja/filters.h"
#include "text/jinja/iteration.h"
#include "text/jinja/methods.h"
#include "text/jinja/repr.h"

namespace deltad::jinja {

namespace {

// Tests of the value alone.
template <bool (*Holds)(const Value&)>
bool plain(Render&, const Value& v, Arguments& a) {
  Parameters("test", a, {});
  return Holds(v);
}

bool is_defined(const Value& v) { return !v.is_undefined(); }
bool is_undefined(const Value& v) { return v.is_undefined(); }
bool is_none(const Value& v) { return v.is_none(); }
bool is_boolean(const Value& v) { return v.is(Kind::kBool); }
bool is_true(const Value& v) { return v.is(Kind::kBool) && v.as_bool(); }
bool is_false(const Value& v) { return v.is(Kind::kBool) && !v.as_bool(); }
bool is_int(const Value& v) { return v.is(Kind::kInt); }
bool is_float(const Value& v) { return v.is(Kind::kFloat); }
bool is_number(const Value& v) { return v.is_number(); }
bool is_string(const Value& v) { return v.is_string(); }
bool is_mapping(const Value& v) { return v.is(Kind::kDict); }
bool is_iterable(const Value& v) { return iterable(v); }
bool is_escaped(const Value& v) { return v.is_string() && v.string().markup; }
bool is_sequence(const Value& v) {
  return v.is_string() || v.is_sequence() || v.is(Kind::kDict) || v.is(Kind::kRange) ||
         v.is_undefined();
}
bool is_callable(const Value& v) {
  return v.is_undefined() || (v.is(Kind::kObject) && v.native().callable());
}

bool remainder_is(Render& render, const Value& v, const Value& divisor, Int wanted) {
  return equal(render, binary(render, Op::kModulo, v, divisor), Value::integer(wanted));
}

bool odd(Render& render, const Value& v, Arguments& a) {
  Parameters("odd", a, {});
  return remainder_is(render, v, Value::integer(2), 1);
}
bool even(Render& render, const Value& v, Arguments& a) {
  Parameters("even", a, {});
  return remainder_is(render, v, Value::integer(2), 0);
}
bool divisibleby(Render& render, const Value& v, Arguments& a) {
  const Parameters p("divisibleby", a, {"num"}, 1);
  return remainder_is(render, v, p[0], 0);
}

bool cased(Render& render, const Value& v, Arguments& a, const char* method) {
  Parameters("test", a, {});
  Arguments none;
  const Value s = soft_str(render, v);
  return find_string_method(method)(render, s, none).as_bool();
}
bool lower(Render& render, const Value& v, Arguments& a) { return cased(render, v, a, "islower"); }
bool upper(Render& render, const Value& v, Arguments& a) { return cased(render, v, a, "isupper"); }

bool in(Render& render, const Value& v, Arguments& a) {
  const Parameters p("in", a, {"seq"}, 1);
  return contains(render, p[0], v);
}
bool sameas(Render&, const Value& v, Arguments& a) {
  const Parameters p("sameas", a, {"other"}, 1);
  return v.same(p[0]);
}
bool eq(Render& render, const Value& v, Arguments& a) {
  const Parameters p("eq", a, {"/other"}, 1);
  return equal(render, v, p[0]);
}
bool ne(Render& render, const Value& v, Arguments& a) {
  const Parameters p("ne", a, {"/other"}, 1);
  return !equal(render, v, p[0]);
}
template <Order O>
bool compares(Render& render, const Value& v, Arguments& a) {
  const Parameters p("comparison", a, {"/other"}, 1);
  return ordered(render, O, v, p[0]);
}

bool filter_exists(Render& render, const Value& v, Arguments& a) {
  Parameters("filter", a, {});
  hash(render, v);
  return v.is_string() && find_filter(v.text()) != nullptr;
}
bool test_exists(Render& render, const Value& v, Arguments& a) {
  Parameters("test", a, {});
  hash(render, v);
  return v.is_string() && find_test(v.text()) != nullptr;
}

}  // namespace

TestFunction find_test(std::string_view name) {
  static const std::unordered_map<std::string_view, TestFunction> kTests = {
      {"boolean", plain<is_boolean>},
      {"callable", plain<is_callable>},
      {"defined", plain<is_defined>},
      {"divisibleby", divisibleby},
      {"eq", eq},
      {"equalto", eq},
      {"==", eq},
      {"escaped", plain<is_escaped>},
      {"even", even},
      {"false", plain<is_false>},
      {"filter", filter_exists},
      {"float", plain<is_float>},
      {"ge", compares<Order::kGreaterEqual>},
      {">=", compares<Order::kGreaterEqual>},
      {"greaterthan", compares<Order::kGreater>},
      {"gt", compares<Order::kGreater>},
      {">", compares<Order::kGreater>},
      {"in", in},
      {"integer", plain<is_int>},
      {"iterable", plain<is_iterable>},
      {"le", compares<Order::kLessEqual>},
      {"<=", compares<Order::kLessEqual>},
      {"lessthan", compares<Order::kLess>},
      {"lower", lower},
      {"lt", compares<Order::kLess>},
      {"<", compares<Order::kLess>},
      {"mapping", plain<is_mapping>},
      {"ne", ne},
      {"!=", ne},
      {"none", plain<is_none>},
      {"number", plain<is_number>},
      {"odd", odd},
      {"sameas", sameas},
      {"sequence", plain<is_sequence>},
      {"string", plain<is_string>},
      {"test", test_exists},
      {"true", plain<is_true>},
      {"undefined", plain<is_undefined>},
      {"upper", upper},
  };
  const auto it = kTests.find(name);
  return it == kTests.end() ? nullptr : it->second;
}

}  // namespace deltad::jinja
