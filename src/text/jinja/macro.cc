#include "text/jinja/macro.h"

#include "text/jinja/repr.h"

namespace deltad::jinja {

namespace {

class BlockReference final : public Native {
 public:
  BlockReference(Interpreter& interpreter, const Block& block, Context* context)
      : Native(&interpreter.render().meter, sizeof(BlockReference), 0),
        interpreter_(interpreter),
        block_(block),
        context_(context) {}
  std::string type_name() const override { return "jinja2.runtime.BlockReference"; }
  std::string repr(Render&) override {
    return address_text("jinja2.runtime.BlockReference object", this);
  }
  Value attribute(Render& render, std::string_view name) override {
    if (name == "name") return render.text(block_.name);
    if (name == "super") {
      return render.undefined_hint(
          fmt::format("there is no parent block called '{}'.", block_.name));
    }
    return Value::missing();
  }
  bool callable() const override { return true; }
  Value call(Render&, Arguments a) override {
    if (!a.positional.empty() || !a.named.empty()) fail("a block takes no arguments");
    return interpreter_.call_block(block_, context_);
  }

 private:
  Interpreter& interpreter_;
  const Block& block_;
  Context* const context_;
};

class Self final : public Native {
 public:
  Self(Interpreter& interpreter, Context* context)
      : Native(&interpreter.render().meter, sizeof(Self), 0),
        interpreter_(interpreter),
        context_(context) {}
  std::string type_name() const override { return "jinja2.runtime.TemplateReference"; }
  std::string repr(Render&) override { return "<TemplateReference None>"; }
  Value item(Render&, const Value& key) override {
    if (!key.is_string()) return Value::missing();
    for (const Block* b : interpreter_.tree().blocks) {
      if (b->name == key.text()) {
        return Value::of(Kind::kObject, new BlockReference(interpreter_, *b, context_));
      }
    }
    return Value::missing();
  }

 private:
  Interpreter& interpreter_;
  Context* const context_;
};

}  // namespace

Value make_self(Interpreter& interpreter, Context* context) {
  return Value::of(Kind::kObject, new Self(interpreter, context));
}

Macro::Macro(Interpreter& interpreter, const MacroNode& node, Activation* environment,
             Context* context)
    : Native(&interpreter.render().meter, sizeof(Macro), 0),
      interpreter_(interpreter),
      node_(node),
      environment_(environment),
      context_(context) {}

std::string Macro::repr(Render&) {
  return node_.name.empty() ? "<Macro anonymous>" : "<Macro " + quoted_repr(node_.name) + ">";
}

Value Macro::attribute(Render& render, std::string_view name) {
  if (name == "name") return node_.name.empty() ? Value() : render.text(node_.name);
  if (name == "arguments") {
    std::vector<Value> names;
    for (const Name* p : node_.parameters) names.push_back(render.text(p->name));
    return render.tuple(std::move(names));
  }
  if (name == "catch_kwargs") return Value::boolean(node_.uses_named);
  if (name == "catch_varargs") return Value::boolean(node_.uses_rest);
  if (name == "caller") return Value::boolean(node_.uses_caller);
  if (name == "explicit_caller") {
    for (const Name* p : node_.parameters) {
      if (p->name == "caller") return Value::boolean(true);
    }
    return Value::boolean(false);
  }
  return Value::missing();
}

Value Macro::call(Render& render, Arguments arguments) {
  return interpreter_.call_macro(node_, environment_, context_, std::move(arguments),
                                 render.autoescape);
}

}  // namespace deltad::jinja
