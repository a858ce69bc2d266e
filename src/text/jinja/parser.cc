#include "text/jinja/parser.h"

#include <algorithm>

namespace deltad::jinja {

Value Tree::text(std::string s) {
  auto constant = std::make_unique<String>(nullptr, std::move(s), false);
  constant->make_immortal();
  const Value v = Value::of(Kind::kString, constant.get());
  constants_.push_back(std::move(constant));
  return v;
}

std::unique_ptr<Tree> Parser::run() {
  tree_->body = statements(nullptr);
  return std::move(tree_);
}

Token Parser::next() {
  Token t = current();
  if (!t.is(TokenKind::kEnd)) ++at_;
  return t;
}

bool Parser::skip_name(std::string_view name) {
  if (!current().is_name(name)) return false;
  next();
  return true;
}

bool Parser::skip_operator(std::string_view op) {
  if (!current().is_operator(op)) return false;
  next();
  return true;
}

void Parser::unexpected(const std::string& expected) const {
  if (current().is(TokenKind::kEnd)) {
    fail(fmt::format("unexpected end of template, expected '{}'.", expected), current().line);
  }
  fail(fmt::format("expected token '{}', got '{}'", expected, describe(current())), current().line);
}

void Parser::expect_operator(std::string_view op) {
  if (!skip_operator(op)) unexpected(std::string(op));
}

void Parser::expect_name(std::string_view name) {
  if (!skip_name(name)) unexpected(std::string(name));
}

void Parser::expect(TokenKind kind) {
  if (!current().is(kind)) unexpected(describe(kind));
  next();
}

std::string Parser::expect_any_name() {
  if (!current().is(TokenKind::kName)) unexpected("name");
  return next().text;
}

void Parser::below(Node* parent, const Node* child) const {
  if (child == nullptr) return;
  parent->height = std::max(parent->height, child->height + 1);
  if (parent->height > meter_.max_nesting()) {
    fail(fmt::format("expressions and blocks nested deeper than {}", meter_.max_nesting()),
         parent->line);
  }
}

}  // namespace deltad::jinja
