// Parser: expressions, by recursive descent in the order of jinja's precedence.
#include <array>
#include <utility>

#include "text/jinja/parser.h"

namespace deltad::jinja {

Expr* Parser::binary(NodeKind kind, int line, Op op, Expr* left, Expr* right) {
  auto* e = tree_->make<Binary>(kind, line, op, left, right);
  below(e, left);
  below(e, right);
  return e;
}

Expr* Parser::conditional() {
  const Level level(&meter_.nesting, meter_.limits().depth, "expressions and blocks");
  int line = current().line;
  Expr* e = disjunction();
  while (skip_name("if")) {
    Expr* test = disjunction();
    Expr* otherwise = skip_name("else") ? conditional() : nullptr;
    auto* c = tree_->make<Condition>(line, test, e, otherwise);
    below(c, test);
    below(c, e);
    below(c, otherwise);
    e = c;
    line = current().line;
  }
  return e;
}

Expr* Parser::disjunction() {
  int line = current().line;
  Expr* e = conjunction();
  while (skip_name("or")) {
    e = binary(NodeKind::kOr, line, Op::kAdd, e, conjunction());
    line = current().line;
  }
  return e;
}

Expr* Parser::conjunction() {
  int line = current().line;
  Expr* e = negation();
  while (skip_name("and")) {
    e = binary(NodeKind::kAnd, line, Op::kAdd, e, negation());
    line = current().line;
  }
  return e;
}

Expr* Parser::negation() {
  std::vector<int> lines;  // of the nots
  while (current().is_name("not")) lines.push_back(next().line);
  Expr* e = comparison();
  while (!lines.empty()) {
    auto* n = tree_->make<Unary>(NodeKind::kNot, lines.back(), e);
    below(n, e);
    e = n;
    lines.pop_back();
  }
  return e;
}

Expr* Parser::comparison() {
  constexpr std::array<std::pair<std::string_view, Comparison>, 6> kComparisons = {{
      {"==", Comparison::kEqual},
      {"!=", Comparison::kNotEqual},
      {"<", Comparison::kLess},
      {"<=", Comparison::kLessEqual},
      {">", Comparison::kGreater},
      {">=", Comparison::kGreaterEqual},
  }};
  const int line = current().line;
  Expr* first = sum();
  Compare* compare = nullptr;
  for (;;) {
    std::optional<Comparison> op;
    for (const auto& [text, comparison] : kComparisons) {
      if (current().is_operator(text)) op = comparison;
    }
    if (op) {
      next();
    } else if (skip_name("in")) {
      op = Comparison::kIn;
    } else if (current().is_name("not") && following().is_name("in")) {
      next();
      next();
      op = Comparison::kNotIn;
    } else {
      break;
    }
    if (compare == nullptr) {
      compare = tree_->make<Compare>(line, first);
      below(compare, first);
    }
    compare->rest.emplace_back(*op, sum());
    below(compare, compare->rest.back().second);
  }
  return compare != nullptr ? compare : first;
}

Expr* Parser::sum() {
  int line = current().line;
  Expr* e = concatenation();
  while (current().is_operator("+") || current().is_operator("-")) {
    const Op op = next().text == "+" ? Op::kAdd : Op::kSubtract;
    e = binary(NodeKind::kBinary, line, op, e, concatenation());
    line = current().line;
  }
  return e;
}

Expr* Parser::concatenation() {
  const int line = current().line;
  Expr* first = product();
  if (!current().is_operator("~")) return first;
  auto* concat = tree_->make<Concat>(line);
  concat->parts.push_back(first);
  while (skip_operator("~")) concat->parts.push_back(product());
  for (const Expr* part : concat->parts) below(concat, part);
  return concat;
}

Expr* Parser::product() {
  int line = current().line;
  Expr* e = power();
  for (;;) {
    Op op;
    if (current().is_operator("*")) {
      op = Op::kMultiply;
    } else if (current().is_operator("/")) {
      op = Op::kDivide;
    } else if (current().is_operator("//")) {
      op = Op::kFloorDivide;
    } else if (current().is_operator("%")) {
      op = Op::kModulo;
    } else {
      return e;
    }
    next();
    e = binary(NodeKind::kBinary, line, op, e, power());
    line = current().line;
  }
}

Expr* Parser::power() {
  int line = current().line;
  Expr* e = unary();
  while (skip_operator("**")) {
    e = binary(NodeKind::kBinary, line, Op::kPower, e, unary());
    line = current().line;
  }
  return e;
}

Expr* Parser::unary(bool with_filter) {
  const int line = current().line;
  Expr* e = nullptr;
  if (current().is_operator("-") || current().is_operator("+")) {
    const Level level(&meter_.nesting, meter_.limits().depth, "expressions and blocks");
    const NodeKind kind = next().text == "-" ? NodeKind::kNegate : NodeKind::kPlus;
    Expr* operand = unary(false);
    e = tree_->make<Unary>(kind, line, operand);
    below(e, operand);
  } else {
    e = primary();
  }
  e = postfix(e);
  return with_filter ? filters_and_tests(e) : e;
}

Expr* Parser::primary(bool namespace_ref) {
  const Token t = current();
  switch (t.kind) {
    case TokenKind::kName:
      next();
      if (t.text == "true" || t.text == "True") {
        return tree_->make<Const>(t.line, Value::boolean(true));
      }
      if (t.text == "false" || t.text == "False") {
        return tree_->make<Const>(t.line, Value::boolean(false));
      }
      if (t.text == "none" || t.text == "None") return tree_->make<Const>(t.line, Value());
      if (namespace_ref && skip_operator(".")) {
        return tree_->make<NamespaceRef>(t.line, t.text, expect_any_name());
      }
      return tree_->make<Name>(t.line, t.text, NameUse::kLoad);
    case TokenKind::kString: {
      std::string text;
      while (current().is(TokenKind::kString)) text += next().text;
      return tree_->make<Const>(t.line, tree_->text(std::move(text)));
    }
    case TokenKind::kInteger:
      next();
      return tree_->make<Const>(t.line, Value::integer(t.integer));
    case TokenKind::kFloat:
      next();
      return tree_->make<Const>(t.line, Value::real(t.real));
    default:
      break;
  }
  if (skip_operator("(")) {
    Expr* e = tuple({.parentheses = true});
    expect_operator(")");
    return e;
  }
  if (t.is_operator("[")) return list_display();
  if (t.is_operator("{")) return dict_display();
  fail(fmt::format("unexpected '{}'", describe(t)), t.line);
}

Expr* Parser::tuple(const TupleRules& rules) {
  // A target in brackets nests without passing through conditional().
  const Level level(&meter_.nesting, meter_.limits().depth, "expressions and blocks");
  int line = current().line;
  std::vector<Expr*> items;
  bool is_tuple = false;
  const auto at_end = [&] {
    return current().is(TokenKind::kVariableEnd) || current().is(TokenKind::kBlockEnd) ||
           current().is_operator(")") || (!rules.end.empty() && current().is_name(rules.end));
  };
  for (;;) {
    if (!items.empty()) expect_operator(",");
    if (at_end()) break;
    items.push_back(rules.simple ? primary(rules.namespace_ref) : expression(rules.condition));
    if (!current().is_operator(",")) break;
    is_tuple = true;
    line = current().line;
  }
  if (!is_tuple) {
    if (!items.empty()) return items[0];
    if (!rules.parentheses) {
      fail(fmt::format("Expected an expression, got '{}'", describe(current())), current().line);
    }
  }
  auto* sequence = tree_->make<Sequence>(line, true);
  for (const Expr* item : items) below(sequence, item);
  sequence->items = std::move(items);
  return sequence;
}

Expr* Parser::list_display() {
  auto* list = tree_->make<Sequence>(next().line, false);
  while (!current().is_operator("]")) {
    if (!list->items.empty()) expect_operator(",");
    if (current().is_operator("]")) break;
    list->items.push_back(expression());
    below(list, list->items.back());
  }
  expect_operator("]");
  return list;
}

Expr* Parser::dict_display() {
  auto* dict = tree_->make<DictDisplay>(next().line);
  while (!current().is_operator("}")) {
    if (!dict->items.empty()) expect_operator(",");
    if (current().is_operator("}")) break;
    Expr* key = expression();
    expect_operator(":");
    Expr* value = expression();
    below(dict, key);
    below(dict, value);
    dict->items.emplace_back(key, value);
  }
  expect_operator("}");
  return dict;
}

Expr* Parser::postfix(Expr* e) {
  for (;;) {
    if (current().is_operator(".") || current().is_operator("[")) {
      e = subscript(e);
    } else if (current().is_operator("(")) {
      e = call(e);
    } else {
      return e;
    }
  }
}

Expr* Parser::filters_and_tests(Expr* e) {
  for (;;) {
    if (current().is_operator("|")) {
      e = filter(e);
    } else if (current().is_name("is")) {
      e = test(e);
    } else if (current().is_operator("(")) {
      e = call(e);
    } else {
      return e;
    }
  }
}

Expr* Parser::subscript(Expr* e) {
  const Token t = next();
  Expr* result = nullptr;
  if (t.text == ".") {
    const Token attribute = next();
    if (attribute.is(TokenKind::kName)) {
      result = tree_->make<Getattr>(t.line, e, tree_->text(attribute.text));
    } else if (attribute.is(TokenKind::kInteger)) {
      auto* index = tree_->make<Const>(attribute.line, Value::integer(attribute.integer));
      result = tree_->make<Getitem>(t.line, e, index);
    } else {
      fail("expected name or number", attribute.line);
    }
  } else {
    std::vector<Expr*> parts;
    while (!current().is_operator("]")) {
      if (!parts.empty()) expect_operator(",");
      parts.push_back(subscribed());
    }
    expect_operator("]");
    Expr* index = nullptr;
    if (parts.size() == 1) {
      index = parts[0];
    } else {
      auto* sequence = tree_->make<Sequence>(t.line, true);
      for (Expr* part : parts) {
        if (part->kind == NodeKind::kSlice) fail("invalid syntax: a slice in a tuple", t.line);
        sequence->items.push_back(part);
        below(sequence, part);
      }
      index = sequence;
    }
    result = tree_->make<Getitem>(t.line, e, index);
    below(result, index);
  }
  below(result, e);
  return result;
}

Expr* Parser::subscribed() {
  const int line = current().line;
  const auto at_part = [&] {
    return !current().is_operator(":") && !current().is_operator("]") &&
           !current().is_operator(",");
  };
  Expr* start = nullptr;
  if (!current().is_operator(":")) {
    start = expression();
    if (!current().is_operator(":")) return start;
  }
  next();
  auto* slice = tree_->make<Slice>(line);
  slice->start = start;
  if (at_part()) slice->stop = expression();
  if (skip_operator(":") && at_part()) slice->step = expression();
  below(slice, slice->start);
  below(slice, slice->stop);
  below(slice, slice->step);
  return slice;
}

Expr* Parser::call(Expr* e) {
  auto* c = tree_->make<Call>(current().line, e);
  below(c, e);
  c->arguments = call_arguments(c);
  return c;
}

CallArguments Parser::call_arguments(Node* parent) {
  const int line = current().line;
  CallArguments a;
  const auto ensure = [&](bool ok) {
    if (!ok) fail("invalid syntax for function call expression", line);
  };
  expect_operator("(");
  bool comma = false;
  while (!current().is_operator(")")) {
    if (comma) {
      expect_operator(",");
      if (current().is_operator(")")) break;
    }
    if (skip_operator("*")) {
      ensure(a.rest == nullptr && a.rest_named == nullptr);
      a.rest = expression();
      below(parent, a.rest);
    } else if (skip_operator("**")) {
      ensure(a.rest_named == nullptr);
      a.rest_named = expression();
      below(parent, a.rest_named);
    } else if (current().is(TokenKind::kName) && following().is_operator("=")) {
      ensure(a.rest_named == nullptr);
      std::string name = next().text;
      next();
      for (const auto& [other, value] : a.named) {
        if (other == name) fail(fmt::format("keyword argument repeated: {}", name), line);
      }
      a.named.emplace_back(std::move(name), expression());
      below(parent, a.named.back().second);
    } else {
      ensure(a.rest == nullptr && a.rest_named == nullptr && a.named.empty());
      a.positional.push_back(expression());
      below(parent, a.positional.back());
    }
    comma = true;
  }
  expect_operator(")");
  return a;
}

Expr* Parser::filter(Expr* e, bool at_name) {
  while (current().is_operator("|") || at_name) {
    if (!at_name) next();
    at_name = false;
    const int line = current().line;
    std::string name = expect_any_name();
    while (skip_operator(".")) name += "." + expect_any_name();
    auto* f = tree_->make<Filter>(line, e, std::move(name));
    below(f, e);
    if (current().is_operator("(")) f->arguments = call_arguments(f);
    e = f;
  }
  return e;
}

Expr* Parser::test(Expr* e) {
  const int line = next().line;
  const bool negated = skip_name("not");
  std::string name = expect_any_name();
  while (skip_operator(".")) name += "." + expect_any_name();
  auto* t = tree_->make<Test>(line, e, std::move(name));
  below(t, e);
  const Token& c = current();
  const bool argument_follows = c.is(TokenKind::kName) || c.is(TokenKind::kString) ||
                                c.is(TokenKind::kInteger) || c.is(TokenKind::kFloat) ||
                                c.is_operator("[") || c.is_operator("{");
  if (c.is_operator("(")) {
    t->arguments = call_arguments(t);
  } else if (argument_follows && !c.is_name("else") && !c.is_name("or") && !c.is_name("and")) {
    if (c.is_name("is")) fail("You cannot chain multiple tests with is", c.line);
    t->arguments.positional.push_back(postfix(primary()));
    below(t, t->arguments.positional.back());
  }
  if (!negated) return t;
  auto* n = tree_->make<Unary>(NodeKind::kNot, line, t);
  below(n, t);
  return n;
}

void Parser::mark_stored(Expr* e) const {
  const auto refuse = [&](const char* what) {
    fail(fmt::format("can't assign to '{}'", what), e->line);
  };
  switch (e->kind) {
    case NodeKind::kName:
      static_cast<Name*>(e)->use = NameUse::kStore;
      return;
    case NodeKind::kNamespaceRef:
      return;
    case NodeKind::kSequence: {
      auto* sequence = static_cast<Sequence*>(e);
      if (!sequence->tuple) refuse("list");
      for (Expr* item : sequence->items) {
        if (item->kind != NodeKind::kName && item->kind != NodeKind::kNamespaceRef &&
            item->kind != NodeKind::kSequence) {
          refuse("tuple");
        }
        mark_stored(item);
      }
      return;
    }
    case NodeKind::kDictDisplay:
      refuse("dict");
      return;
    default:
      refuse("const");
  }
}

Expr* Parser::target(bool namespace_ref, std::string_view end) {
  Expr* e = tuple({.end = end, .simple = true, .namespace_ref = namespace_ref});
  mark_stored(e);
  return e;
}

Name* Parser::name_target() {
  const int line = current().line;
  std::string name = expect_any_name();
  for (const std::string_view reserved : {"true", "false", "none", "True", "False", "None"}) {
    if (name == reserved) fail("can't assign to 'name'", line);
  }
  return tree_->make<Name>(line, std::move(name), NameUse::kStore);
}

}  // namespace deltad::jinja
