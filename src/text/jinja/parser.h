// Parses tokens into a Tree, with jinja's grammar and messages. Nesting is bounded, so the parser's
// own recursion is too. Used while a template is compiled, by one thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/lexer.h"
#include "text/jinja/meter.h"

namespace deltad::jinja {

class Parser {
 public:
  Parser(std::string_view source, const TemplateLimits& limits)
      : meter_(limits), tokens_(tokenize(source)), tree_(std::make_unique<Tree>()) {}
  std::unique_ptr<Tree> run();

 private:
  // Tokens (parser.cc)
  const Token& current() const { return tokens_[at_]; }
  const Token& following() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token next();
  bool skip_name(std::string_view name);
  bool skip_operator(std::string_view op);
  void expect_operator(std::string_view op);
  void expect_name(std::string_view name);
  void expect(TokenKind kind);
  std::string expect_any_name();
  [[noreturn]] void unexpected(const std::string& expected) const;

  // Puts child below parent; fails where the tree gets too high.
  void below(Node* parent, const Node* child) const;

  // Expressions (parser_expressions.cc)
  struct TupleRules {
    bool condition = true;       // x if y else z
    std::string_view end = {};   // a name that ends the tuple
    bool parentheses = false;    // an empty tuple is allowed
    bool simple = false;         // a target: names and literals
    bool namespace_ref = false;  // a target may be name.attribute
  };
  Expr* tuple(const TupleRules& rules);
  Expr* expression(bool condition = true) { return condition ? conditional() : disjunction(); }
  Expr* conditional();
  Expr* disjunction();
  Expr* conjunction();
  Expr* negation();
  Expr* comparison();
  Expr* sum();
  Expr* concatenation();
  Expr* product();
  Expr* power();
  Expr* unary(bool with_filter = true);
  Expr* primary(bool namespace_ref = false);
  Expr* list_display();
  Expr* dict_display();
  Expr* postfix(Expr* e);
  Expr* filters_and_tests(Expr* e);
  Expr* subscript(Expr* e);
  Expr* subscribed();
  Expr* call(Expr* e);
  CallArguments call_arguments(Node* parent);
  Expr* filter(Expr* e, bool at_name = false);
  Expr* test(Expr* e);
  Expr* binary(NodeKind kind, int line, Op op, Expr* left, Expr* right);
  Expr* target(bool namespace_ref, std::string_view end);
  Name* name_target();
  void mark_stored(Expr* e) const;

  // Statements (parser_statements.cc)
  using Ends = std::vector<std::string_view>;
  Body statements(const Ends* ends);  // null: to the end of the template
  Body block_body(Node* parent, const Ends& ends, bool drop_end);
  Stmt* statement();
  Stmt* statement_for(const std::string& tag);
  Stmt* for_statement();
  Stmt* if_statement();
  Stmt* set_statement();
  Stmt* with_statement();
  Stmt* autoescape_statement();
  Stmt* block_statement();
  Stmt* macro_statement();
  Stmt* call_statement();
  Stmt* filter_statement();
  Stmt* print_statement();
  Stmt* generation_statement();
  Stmt* refused_statement();
  Stmt* jump_statement();
  void signature(MacroNode* macro);
  bool skip_context();
  void collect_namespaces(const Expr* target, Set* set) const;
  [[noreturn]] void unknown_tag(const std::string* name, const std::vector<Ends>& looking,
                                int line) const;

  Meter meter_;
  const std::vector<Token> tokens_;
  size_t at_ = 0;
  std::unique_ptr<Tree> tree_;
  std::vector<std::string> tags_;  // those that are open
  std::vector<Ends> ends_;         // what closes them
};

}  // namespace deltad::jinja
