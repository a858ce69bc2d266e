// The special variable `loop` of a for statement, which also walks its items.
#pragma once

#include <optional>
#include <vector>

#include "text/jinja/interpreter.h"
#include "text/jinja/iteration.h"

namespace deltad::jinja {

class Loop final : public Native {
 public:
  Loop(Interpreter& interpreter, const For& node, const Value& items, Activation* environment,
       Context* context, int depth);

  bool advance(Value* item);  // to the next iteration
  void finish();              // the statement has ended; the variable may live on

  std::string type_name() const override { return "jinja2.runtime.LoopContext"; }
  std::string repr(Render& render) override;
  Value attribute(Render& render, std::string_view name) override;
  bool callable() const override { return true; }
  Value call(Render& render, Arguments arguments) override;  // of a recursive loop
  void clear() override;

  Value cycle(Arguments& arguments);
  Value changed(Render& render, Arguments arguments);

 private:
  bool pull(Value* item);  // the next item that passes the loop's test
  bool peek();             // into next_
  Int length();

  Interpreter& interpreter_;
  const For& node_;
  Activation* const environment_;  // of the function that the statement is in
  Context* const context_;
  const int depth_;
  const Value items_;
  std::optional<Walk> walk_;
  std::vector<Value> rest_;  // read ahead to know the length
  size_t rest_at_ = 0;
  Int index_ = -1;
  std::optional<Int> length_;
  Value next_ = Value::missing(), current_ = Value::missing(), previous_ = Value::missing();
  Value last_changed_ = Value::missing();
  bool entered_test_ = false, kept_ = false;
};

}  // namespace deltad::jinja
