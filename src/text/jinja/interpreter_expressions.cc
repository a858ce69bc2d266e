// Interpreter: expressions.
#include <utility>

#include "text/jinja/attributes.h"
#include "text/jinja/compare.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/iteration.h"
#include "text/jinja/operators.h"
#include "text/jinja/repr.h"

namespace deltad::jinja {

namespace {

bool holds(Render& render, Comparison op, const Value& a, const Value& b) {
  switch (op) {
    case Comparison::kEqual:
      return equal(render, a, b);
    case Comparison::kNotEqual:
      return !equal(render, a, b);
    case Comparison::kLess:
      return ordered(render, Order::kLess, a, b);
    case Comparison::kLessEqual:
      return ordered(render, Order::kLessEqual, a, b);
    case Comparison::kGreater:
      return ordered(render, Order::kGreater, a, b);
    case Comparison::kGreaterEqual:
      return ordered(render, Order::kGreaterEqual, a, b);
    case Comparison::kIn:
      return contains(render, b, a);
    case Comparison::kNotIn:
      return !contains(render, b, a);
  }
  return false;
}

}  // namespace

Value call_value(Render& render, const Value& callee, Arguments arguments) {
  if (callee.is(Kind::kObject)) return callee.native().call(render, std::move(arguments));
  if (callee.is_undefined()) fail(callee.undefined().message());
  fail(fmt::format("'{}' object is not callable", type_name(callee)));
}

bool Interpreter::truth(const Expr* e) { return truthy(render_, eval(e)); }

Value Interpreter::eval(const Expr* e) {
  const Level level(&render_.meter.nesting, render_.meter.max_nesting(), "calls and expressions");
  render_.meter.step();
  render_.line = e->line;
  switch (e->kind) {
    case NodeKind::kConst:
      return static_cast<const Const*>(e)->value;
    case NodeKind::kName:
      return name(*static_cast<const Name*>(e));
    case NodeKind::kSequence:
      return sequence(*static_cast<const Sequence*>(e));
    case NodeKind::kDictDisplay:
      return dict(*static_cast<const DictDisplay*>(e));
    case NodeKind::kNot:
      return Value::boolean(!truth(static_cast<const Unary*>(e)->operand));
    case NodeKind::kNegate:
    case NodeKind::kPlus:
      return unary(*static_cast<const Unary*>(e));
    case NodeKind::kBinary:
      return arithmetic(*static_cast<const Binary*>(e));
    case NodeKind::kAnd:
    case NodeKind::kOr:
      return logical(*static_cast<const Binary*>(e));
    case NodeKind::kConcat:
      return concat(*static_cast<const Concat*>(e));
    case NodeKind::kCompare:
      return compare(*static_cast<const Compare*>(e));
    case NodeKind::kCondition:
      return condition(*static_cast<const Condition*>(e));
    case NodeKind::kGetattr: {
      const auto& g = *static_cast<const Getattr*>(e);
      const Value object = eval(g.object);
      render_.line = e->line;
      return get_attribute(render_, object, g.name);
    }
    case NodeKind::kGetitem:
      return getitem(*static_cast<const Getitem*>(e));
    case NodeKind::kCall:
      return call(*static_cast<const Call*>(e), nullptr);
    case NodeKind::kFilter:
      return filter(*static_cast<const Filter*>(e));
    case NodeKind::kTest:
      return test(*static_cast<const Test*>(e));
    default:
      fail("this is not an expression");
  }
}

Value Interpreter::name(const Name& n) {
  const Value& v = variable(n.slot);
  return v.is_missing() ? render_.undefined_name(n.name) : v;
}

Value Interpreter::sequence(const Sequence& s) {
  std::vector<Value> items;
  items.reserve(s.items.size());
  for (const Expr* item : s.items) items.push_back(eval(item));
  return s.tuple ? render_.tuple(std::move(items)) : render_.list(std::move(items));
}

Value Interpreter::dict(const DictDisplay& d) {
  DictBuilder builder(render_);
  for (const auto& [key, value] : d.items) {
    Value k = eval(key);
    builder.set(std::move(k), eval(value));
  }
  return builder.take();
}

Value Interpreter::unary(const Unary& u) {
  const Value v = eval(u.operand);
  render_.line = u.line;
  return u.kind == NodeKind::kNegate ? negate(render_, v) : plus(render_, v);
}

Value Interpreter::arithmetic(const Binary& b) {
  const Value left = eval(b.left);
  const Value right = eval(b.right);
  render_.line = b.line;
  return binary(render_, b.op, left, right);
}

Value Interpreter::logical(const Binary& b) {
  Value left = eval(b.left);
  const bool decided = truthy(render_, left) == (b.kind == NodeKind::kOr);
  return decided ? left : eval(b.right);
}

Value Interpreter::concat(const Concat& c) {
  std::vector<Value> parts;
  bool markup = false;
  for (const Expr* e : c.parts) {
    parts.push_back(eval(e));
    markup = markup || (parts.back().is_string() && parts.back().string().markup);
  }
  markup = markup && c.escape == Escape::kOn;
  std::string s;
  for (const Value& v : parts) {
    s += markup ? escaped_str(render_, v) : str(render_, v);
    render_.meter.check_size(s.size());
  }
  return render_.text(std::move(s), markup);
}

Value Interpreter::compare(const Compare& c) {
  Value left = eval(c.first);
  for (const auto& [op, e] : c.rest) {
    Value right = eval(e);
    render_.line = c.line;
    if (!holds(render_, op, left, right)) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Value Interpreter::condition(const Condition& c) {
  if (truth(c.test)) return eval(c.then);
  if (c.otherwise != nullptr) return eval(c.otherwise);
  return render_.undefined_hint(
      fmt::format("the inline if-expression on line {} evaluated to false and no else section was "
                  "defined.",
                  c.line));
}

Value Interpreter::getitem(const Getitem& g) {
  const Value object = eval(g.object);
  if (g.index->kind != NodeKind::kSlice) {
    const Value index = eval(g.index);
    render_.line = g.line;
    return get_item(render_, object, index);
  }
  const auto& s = *static_cast<const Slice*>(g.index);
  const auto part = [&](const Expr* e) { return e == nullptr ? Value() : eval(e); };
  const Value start = part(s.start);
  const Value stop = part(s.stop);
  const Value step = part(s.step);
  render_.line = g.line;
  return slice(render_, object, start, stop, step);
}

Arguments Interpreter::arguments(const CallArguments& a) {
  Arguments out;
  for (const Expr* e : a.positional) out.positional.push_back(eval(e));
  if (a.rest != nullptr) {
    const Value rest = eval(a.rest);
    if (!iterable(rest)) {
      fail(fmt::format("Value after * must be an iterable, not {}", type_name(rest)));
    }
    Walk walk(render_, rest);
    Value item;
    while (walk.next(&item)) out.positional.push_back(item);
  }
  for (const auto& [name, e] : a.named) out.named.emplace_back(name, eval(e));
  if (a.rest_named == nullptr) return out;
  const Value rest = eval(a.rest_named);
  if (!rest.is(Kind::kDict)) {
    fail(fmt::format("argument after ** must be a mapping, not {}", type_name(rest)));
  }
  for (const auto& [key, v] : rest.dict().entries) {
    render_.meter.step(static_cast<int64_t>(out.named.size()) + 1);
    if (!key.is_string()) fail("keywords must be strings");
    for (const auto& [name, other] : out.named) {
      if (name == key.text()) {
        fail(fmt::format("got multiple values for keyword argument '{}'", name));
      }
    }
    out.named.emplace_back(key.text(), v);
  }
  return out;
}

Value Interpreter::call(const Call& c, const Value* caller) {
  const Value callee = eval(c.callee);
  Arguments a = arguments(c.arguments);
  if (caller != nullptr) a.named.emplace_back("caller", *caller);
  render_.line = c.line;
  return call_value(render_, callee, std::move(a));
}

Value Interpreter::filter(const Filter& f) {
  const Value operand = f.operand != nullptr ? eval(f.operand) : captured_;
  Arguments a = arguments(f.arguments);
  render_.line = f.line;
  if (f.function == nullptr) fail(fmt::format("No filter named '{}' found.", f.name));
  return f.function(render_, operand, a);
}

Value Interpreter::test(const Test& t) {
  const Value operand = eval(t.operand);
  Arguments a = arguments(t.arguments);
  render_.line = t.line;
  if (t.function == nullptr) fail(fmt::format("No test named '{}' found.", t.name));
  return Value::boolean(t.function(render_, operand, a));
}

}  // namespace deltad::jinja
