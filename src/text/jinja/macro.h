// Macros as values, and `self`, through which a template calls its blocks.
#pragma once

#include "text/jinja/interpreter.h"

namespace deltad::jinja {

class Macro final : public Native {
 public:
  Macro(Interpreter& interpreter, const MacroNode& node, Activation* environment, Context* context);
  std::string type_name() const override { return "jinja2.runtime.Macro"; }
  std::string repr(Render& render) override;
  Value attribute(Render& render, std::string_view name) override;
  bool callable() const override { return true; }
  Value call(Render& render, Arguments arguments) override;

 private:
  Interpreter& interpreter_;
  const MacroNode& node_;
  Activation* const environment_;  // kept by the render
  Context* const context_;
};

Value make_self(Interpreter& interpreter, Context* context);

}  // namespace deltad::jinja
