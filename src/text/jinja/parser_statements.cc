// Parser: template text and statements.
#include <algorithm>

#include "text/jinja/parser.h"
#include "text/jinja/unicode.h"

namespace deltad::jinja {

namespace {

bool only_space(const Body& body) {
  return std::all_of(body.begin(), body.end(), [](const Stmt* s) {
    if (s->kind != NodeKind::kOutput) return false;
    const auto& parts = static_cast<const Output*>(s)->parts;
    return std::all_of(parts.begin(), parts.end(), [](const Expr* e) {
      return e->kind == NodeKind::kData && strip(static_cast<const Data*>(e)->text).empty();
    });
  });
}

}  // namespace

Body Parser::statements(const Ends* ends) {
  const Level level(&meter_.nesting, meter_.limits().depth, "expressions and blocks");
  Body body;
  Output* output = nullptr;  // text and printed expressions in a row are one statement
  if (ends != nullptr) ends_.push_back(*ends);
  const auto to_output = [&](int line) {
    if (output == nullptr) {
      output = tree_->make<Output>(line);
      body.push_back(output);
    }
    return output;
  };
  while (!current().is(TokenKind::kEnd)) {
    const Token& t = current();
    if (t.is(TokenKind::kData)) {
      to_output(t.line)->parts.push_back(tree_->make<Data>(t.line, t.text));
      below(output, output->parts.back());
      next();
    } else if (t.is(TokenKind::kVariableBegin)) {
      next();
      to_output(t.line)->parts.push_back(tuple({}));
      below(output, output->parts.back());
      expect(TokenKind::kVariableEnd);
    } else {
      output = nullptr;
      next();
      if (ends != nullptr && current().is(TokenKind::kName) &&
          std::find(ends->begin(), ends->end(), current().text) != ends->end()) {
        break;
      }
      body.push_back(statement());
      expect(TokenKind::kBlockEnd);
    }
  }
  if (ends != nullptr) ends_.pop_back();
  return body;
}

Body Parser::block_body(Node* parent, const Ends& ends, bool drop_end) {
  skip_operator(":");
  expect(TokenKind::kBlockEnd);
  Body body = statements(&ends);
  if (current().is(TokenKind::kEnd)) {
    std::vector<Ends> looking = ends_;
    looking.push_back(ends);
    unknown_tag(nullptr, looking, current().line);
  }
  if (drop_end) next();
  for (const Stmt* s : body) below(parent, s);
  return body;
}

void Parser::unknown_tag(const std::string* name, const std::vector<Ends>& looking,
                         int line) const {
  std::string message = name == nullptr ? "Unexpected end of template."
                                        : fmt::format("Encountered unknown tag '{}'.", *name);
  if (!looking.empty()) {
    std::string list;
    for (const std::string_view end : looking.back()) {
      list += fmt::format("{}'{}'", list.empty() ? "" : " or ", end);
    }
    const bool expected =
        name != nullptr && std::any_of(looking.begin(), looking.end(), [&](const Ends& ends) {
          return std::find(ends.begin(), ends.end(), *name) != ends.end();
        });
    message += expected ? fmt::format(
                              " You probably made a nesting mistake. Jinja is expecting this tag,"
                              " but currently looking for {}.",
                              list)
                        : fmt::format(" Jinja was looking for the following tags: {}.", list);
  }
  if (!tags_.empty()) {
    message += fmt::format(" The innermost block that needs to be closed is '{}'.", tags_.back());
  }
  fail(message, line);
}

Stmt* Parser::statement() {
  if (!current().is(TokenKind::kName)) fail("tag name expected", current().line);
  const std::string tag = current().text;
  const int line = current().line;
  tags_.push_back(tag);
  Stmt* s = statement_for(tag);
  tags_.pop_back();
  if (s == nullptr) unknown_tag(&tag, ends_, line);
  return s;
}

Stmt* Parser::statement_for(const std::string& tag) {
  if (tag == "for") return for_statement();
  if (tag == "if") return if_statement();
  if (tag == "set") return set_statement();
  if (tag == "macro") return macro_statement();
  if (tag == "call") return call_statement();
  if (tag == "filter") return filter_statement();
  if (tag == "with") return with_statement();
  if (tag == "block") return block_statement();
  if (tag == "autoescape") return autoescape_statement();
  if (tag == "print") return print_statement();
  if (tag == "generation") return generation_statement();
  if (tag == "break" || tag == "continue") return jump_statement();
  if (tag == "include" || tag == "import" || tag == "from" || tag == "extends") {
    return refused_statement();
  }
  return nullptr;
}

Stmt* Parser::for_statement() {
  auto* f = tree_->make<For>(next().line);
  f->target = target(false, "in");
  expect_name("in");
  f->iterable = tuple({.condition = false, .end = "recursive"});
  if (skip_name("if")) f->test = expression();
  f->recursive = skip_name("recursive");
  below(f, f->target);
  below(f, f->iterable);
  below(f, f->test);
  f->body = block_body(f, {"endfor", "else"}, false);
  if (next().text == "else") f->otherwise = block_body(f, {"endfor"}, true);
  return f;
}

Stmt* Parser::if_statement() {
  auto* s = tree_->make<If>(next().line);
  for (;;) {
    Expr* test = tuple({.condition = false});
    below(s, test);
    s->branches.emplace_back(test, block_body(s, {"elif", "else", "endif"}, false));
    const Token end = next();
    if (end.text == "elif") continue;
    if (end.text == "else") s->otherwise = block_body(s, {"endif"}, true);
    return s;
  }
}

void Parser::collect_namespaces(const Expr* target, Set* set) const {
  if (target->kind == NodeKind::kNamespaceRef) {
    set->namespaces.push_back(static_cast<const NamespaceRef*>(target));
  } else if (target->kind == NodeKind::kSequence) {
    for (const Expr* item : static_cast<const Sequence*>(target)->items) {
      collect_namespaces(item, set);
    }
  }
}

Stmt* Parser::set_statement() {
  const int line = next().line;
  Expr* to = target(true, "");
  if (skip_operator("=")) {
    auto* s = tree_->make<Set>(line);
    s->target = to;
    s->value = tuple({});
    below(s, s->target);
    below(s, s->value);
    collect_namespaces(to, s);
    return s;
  }
  auto* s = tree_->make<SetBlock>(line);
  s->target = to;
  s->filter = filter(nullptr);
  below(s, s->target);
  below(s, s->filter);
  s->body = block_body(s, {"endset"}, true);
  return s;
}

Stmt* Parser::with_statement() {
  auto* w = tree_->make<With>(next().line);
  while (!current().is(TokenKind::kBlockEnd)) {
    if (!w->targets.empty()) expect_operator(",");
    w->targets.push_back(target(false, ""));
    expect_operator("=");
    w->values.push_back(expression());
    below(w, w->targets.back());
    below(w, w->values.back());
  }
  w->body = block_body(w, {"endwith"}, true);
  return w;
}

Stmt* Parser::autoescape_statement() {
  auto* a = tree_->make<Autoescape>(next().line);
  a->value = expression();
  below(a, a->value);
  a->body = block_body(a, {"endautoescape"}, true);
  return a;
}

Stmt* Parser::block_statement() {
  auto* b = tree_->make<Block>(next().line);
  b->name = expect_any_name();
  b->scoped = skip_name("scoped");
  b->required = skip_name("required");
  if (current().is_operator("-")) {
    fail(
        "Block names in Jinja have to be valid Python identifiers and may not contain hyphens, use "
        "an underscore instead.",
        current().line);
  }
  b->body = block_body(b, {"endblock"}, true);
  if (b->required && !only_space(b->body)) {
    fail("Required blocks can only contain comments or whitespace", current().line);
  }
  skip_name(b->name);
  for (const Block* other : tree_->blocks) {
    if (other->name == b->name) fail(fmt::format("block '{}' defined twice", b->name), b->line);
  }
  tree_->blocks.push_back(b);
  return b;
}

void Parser::signature(MacroNode* macro) {
  expect_operator("(");
  while (!current().is_operator(")")) {
    if (!macro->parameters.empty()) expect_operator(",");
    Name* parameter = name_target();
    parameter->use = NameUse::kParameter;
    for (const Name* other : macro->parameters) {
      if (other->name == parameter->name) {
        fail(fmt::format("duplicate argument '{}' in the definition of a macro", parameter->name),
             parameter->line);
      }
    }
    if (skip_operator("=")) {
      macro->defaults.push_back(expression());
      below(macro, macro->defaults.back());
    } else if (!macro->defaults.empty()) {
      fail("non-default argument follows default argument", current().line);
    }
    macro->parameters.push_back(parameter);
  }
  expect_operator(")");
}

Stmt* Parser::macro_statement() {
  auto* m = tree_->make<MacroNode>(NodeKind::kMacro, next().line);
  m->name = name_target()->name;
  signature(m);
  m->body = block_body(m, {"endmacro"}, true);
  return m;
}

Stmt* Parser::call_statement() {
  auto* m = tree_->make<MacroNode>(NodeKind::kCallBlock, next().line);
  if (current().is_operator("(")) signature(m);
  m->call = expression();
  if (m->call->kind != NodeKind::kCall) fail("expected call", m->line);
  below(m, m->call);
  m->body = block_body(m, {"endcall"}, true);
  return m;
}

Stmt* Parser::generation_statement() {
  auto* m = tree_->make<MacroNode>(NodeKind::kCallBlock, next().line);
  m->body = block_body(m, {"endgeneration"}, true);
  return m;
}

Stmt* Parser::filter_statement() {
  auto* f = tree_->make<FilterBlock>(next().line);
  f->filter = filter(nullptr, true);
  below(f, f->filter);
  f->body = block_body(f, {"endfilter"}, true);
  return f;
}

Stmt* Parser::print_statement() {
  auto* o = tree_->make<Output>(next().line);
  while (!current().is(TokenKind::kBlockEnd)) {
    if (!o->parts.empty()) expect_operator(",");
    o->parts.push_back(expression());
    below(o, o->parts.back());
  }
  return o;
}

bool Parser::skip_context() {
  const bool with = current().is_name("with") || current().is_name("without");
  if (!with || !following().is_name("context")) return false;
  next();
  next();
  return true;
}

Stmt* Parser::refused_statement() {
  const Token tag = next();
  auto* r = tree_->make<Refused>(tag.line, tag.text);
  r->expressions.push_back(expression());
  below(r, r->expressions.back());
  if (tag.text == "include") {
    if (current().is_name("ignore") && following().is_name("missing")) {
      next();
      next();
    }
    skip_context();
  } else if (tag.text == "import") {
    expect_name("as");
    r->targets.push_back(name_target());
    skip_context();
  } else if (tag.text == "from") {
    expect_name("import");
    for (bool more = true; more;) {
      if (skip_context()) break;
      Name* name = name_target();
      if (name->name[0] == '_') {
        fail("names starting with an underline can not be imported", name->line);
      }
      r->targets.push_back(skip_name("as") ? name_target() : name);
      more = !skip_context() && skip_operator(",");
    }
  }
  return r;
}

Stmt* Parser::jump_statement() {
  const Token t = next();
  return tree_->make<Jump>(t.text == "break" ? NodeKind::kBreak : NodeKind::kContinue, t.line);
}

}  // namespace deltad::jinja
