// Runs a resolved tree for one render: statements write to a buffer, expressions give values.
// Not shared between threads; the tree is, and is only read.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/render.h"

namespace deltad::jinja {

// The variables of one call of a function. parent: of the function around it.
class Activation final : public Object {
 public:
  Activation(Meter* meter, Activation* parent_activation, int slots)
      : Object(meter, sizeof(Activation) + static_cast<size_t>(slots) * sizeof(Value), 0),
        variables(static_cast<size_t>(slots), Value::missing()),
        parent(parent_activation) {}
  void clear() override { variables.clear(); }

  std::vector<Value> variables;
  Activation* const parent;  // kept by the render, or still running
  bool kept = false;
};

// What names mean that are no variable of the template: the caller's variables, then the globals;
// and before them what the top level has set.
struct Context {
  const Context* parent = nullptr;
  std::unordered_map<std::string, Value> names;

  Value find(const std::string& name) const;  // kMissing: none
};

enum class Flow { kNext, kBreak, kContinue };

class Loop;

class Interpreter {
 public:
  Interpreter(Render& render, const Tree& tree, Context* context);

  std::string run();

  Value call_macro(const MacroNode& macro, Activation* environment, Context* context,
                   Arguments arguments, bool markup);
  Value call_block(const Block& block, Context* context);
  // The text of a recursive loop over items.
  std::string run_recursive(const For& node, const Value& items, Activation* environment,
                            Context* context, int depth);
  // Whether the loop's test holds for the item.
  bool passes(const For& node, Activation* environment, const Value& item);
  void enter_test(const For& node, Activation* environment);

  const Tree& tree() const { return tree_; }
  Render& render() { return render_; }

 private:
  struct Scope;  // changes the running function, and back

  // Statements (interpreter.cc)
  Flow run(const Body& body);
  Flow run(const Stmt* statement);
  std::string capture(const Body& body, Flow* flow);
  void write(std::string_view text);
  void write_value(const Value& v);  // what is written as it is: must be a string
  void output(const Output& o);
  Flow if_statement(const If& i);
  Flow for_statement(const For& f);
  Flow loop_over(const For& f, Loop* loop);
  void set(const Set& s);
  Flow set_block(const SetBlock& s);
  Flow with(const With& w);
  Flow autoescape(const Autoescape& a);
  Flow filter_block(const FilterBlock& f);
  void block(const Block& b);
  void run_block(const Block& b, Context* context);
  void macro(const MacroNode& m);
  void call_block_statement(const MacroNode& m);

  void enter(const std::vector<Load>& loads);
  void leave(const std::vector<Load>& loads);
  void assign(const Expr* target, const Value& v);
  void export_names(const Expr* target);
  Value& variable(Slot slot);
  Value make_macro(const MacroNode& m);
  void keep_environment();
  void bind_parameters(const MacroNode& m, Arguments* arguments);

  // Expressions (interpreter_expressions.cc)
  Value eval(const Expr* e);
  Value name(const Name& n);
  Value sequence(const Sequence& s);
  Value dict(const DictDisplay& d);
  Value concat(const Concat& c);
  Value compare(const Compare& c);
  Value condition(const Condition& c);
  Value getitem(const Getitem& g);
  Value call(const Call& c, const Value* caller);
  Value filter(const Filter& f);
  Value test(const Test& t);
  Value logical(const Binary& b);
  Value arithmetic(const Binary& b);
  Value unary(const Unary& u);
  Arguments arguments(const CallArguments& a);
  bool truth(const Expr* e);

  Render& render_;
  const Tree& tree_;
  Context* context_;
  Activation* environment_ = nullptr;
  std::string* out_ = nullptr;
  Value captured_;                                  // the text that a filter block filters
  std::vector<std::unique_ptr<Context>> contexts_;  // of scoped blocks
};

// Calls what a template calls; fails on what cannot be called.
Value call_value(Render& render, const Value& callee, Arguments arguments);

}  // namespace deltad::jinja
