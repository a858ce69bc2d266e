#include "text/jinja/interpreter.h"

#include <utility>

#include "text/jinja/compare.h"
#include "text/jinja/functions.h"
#include "text/jinja/iteration.h"
#include "text/jinja/loop.h"
#include "text/jinja/macro.h"
#include "text/jinja/repr.h"

namespace deltad::jinja {

struct Interpreter::Scope {
  Scope(Interpreter* i, Activation* environment, Context* context)
      : self(i), saved_environment(i->environment_), saved_context(i->context_) {
    i->environment_ = environment;
    i->context_ = context;
  }
  ~Scope() {
    self->environment_ = saved_environment;
    self->context_ = saved_context;
  }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
  Interpreter* self;
  Activation* saved_environment;
  Context* saved_context;
};

Value Context::find(const std::string& name) const {
  for (const Context* c = this; c != nullptr; c = c->parent) {
    if (const auto it = c->names.find(name); it != c->names.end()) return it->second;
  }
  return Value::missing();
}

Interpreter::Interpreter(Render& render, const Tree& tree, Context* context)
    : render_(render), tree_(tree), context_(context) {}

std::string Interpreter::run() {
  std::string text;
  out_ = &text;
  const Ref<Activation> root(new Activation(&render_.meter, nullptr, tree_.function.slots));
  render_.keep(root.get());
  root->kept = true;
  const Scope scope(this, root.get(), context_);
  if (tree_.self.hops == 0) variable(tree_.self) = make_self(*this, context_);
  enter(tree_.function.loads);
  run(tree_.body);
  return text;
}

Value& Interpreter::variable(Slot slot) {
  Activation* a = environment_;
  for (int i = 0; i < slot.hops; ++i) a = a->parent;
  return a->variables[static_cast<size_t>(slot.index)];
}

void Interpreter::enter(const std::vector<Load>& loads) {
  for (const Load& load : loads) {
    switch (load.how) {
      case Load::How::kParameter:
        break;
      case Load::How::kResolve:
        variable(load.target) = context_->find(load.name);
        break;
      case Load::How::kAlias:
        variable(load.target) = variable(load.source);
        break;
      case Load::How::kUndefined:
        variable(load.target) = Value::missing();
        break;
    }
  }
}

void Interpreter::leave(const std::vector<Load>& loads) {
  for (const Load& load : loads) variable(load.target) = Value::missing();
}

void Interpreter::write(std::string_view text) {
  render_.meter.check_size(out_->size() + text.size());
  render_.meter.work(text.size());
  out_->append(text);
}

void Interpreter::write_value(const Value& v) {
  if (!v.is_string()) {
    fail(fmt::format("sequence item 0: expected str instance, {} found", type_name(v)));
  }
  write(v.text());
}

Flow Interpreter::run(const Body& body) {
  for (const Stmt* s : body) {
    const Flow flow = run(s);
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Flow Interpreter::run(const Stmt* s) {
  const Level level(&render_.meter.nesting, render_.meter.max_nesting(), "calls and blocks");
  render_.meter.step();
  render_.line = s->line;
  switch (s->kind) {
    case NodeKind::kOutput:
      output(*static_cast<const Output*>(s));
      return Flow::kNext;
    case NodeKind::kFor:
      return for_statement(*static_cast<const For*>(s));
    case NodeKind::kIf:
      return if_statement(*static_cast<const If*>(s));
    case NodeKind::kSet:
      set(*static_cast<const Set*>(s));
      return Flow::kNext;
    case NodeKind::kSetBlock:
      return set_block(*static_cast<const SetBlock*>(s));
    case NodeKind::kWith:
      return with(*static_cast<const With*>(s));
    case NodeKind::kAutoescape:
      return autoescape(*static_cast<const Autoescape*>(s));
    case NodeKind::kBlock:
      block(*static_cast<const Block*>(s));
      return Flow::kNext;
    case NodeKind::kMacro:
      macro(*static_cast<const MacroNode*>(s));
      return Flow::kNext;
    case NodeKind::kCallBlock:
      call_block_statement(*static_cast<const MacroNode*>(s));
      return Flow::kNext;
    case NodeKind::kFilterBlock:
      return filter_block(*static_cast<const FilterBlock*>(s));
    case NodeKind::kRefused:
      fail(fmt::format("{{% {} %}} is not supported: a chat template stands alone",
                       static_cast<const Refused*>(s)->tag));
    case NodeKind::kBreak:
      return Flow::kBreak;
    case NodeKind::kContinue:
      return Flow::kContinue;
    default:
      return Flow::kNext;
  }
}

std::string Interpreter::capture(const Body& body, Flow* flow) {
  std::string text;
  std::string* const before = std::exchange(out_, &text);
  *flow = run(body);
  out_ = before;
  return text;
}

void Interpreter::output(const Output& o) {
  for (const Expr* part : o.parts) {
    if (part->kind == NodeKind::kData) {
      render_.meter.step();
      write(static_cast<const Data*>(part)->text);
      continue;
    }
    const Value v = eval(part);
    const bool escape =
        o.escape == Escape::kOn || (o.escape == Escape::kDynamic && render_.autoescape);
    if (escape) {
      write(escaped_str(render_, v));
    } else if (v.is_string()) {
      write(v.text());
    } else {
      write(str(render_, v));
    }
  }
}

Flow Interpreter::if_statement(const If& i) {
  for (const auto& [test, body] : i.branches) {
    if (truth(test)) return run(body);
  }
  return run(i.otherwise);
}

Flow Interpreter::for_statement(const For& f) {
  const Value items = eval(f.iterable);
  render_.line = f.line;
  if (f.recursive) {
    keep_environment();
    write(run_recursive(f, items, environment_, context_, 0));
    return Flow::kNext;
  }
  const Ref<Loop> loop(new Loop(*this, f, items, environment_, context_, 0));
  return loop_over(f, loop.get());
}

std::string Interpreter::run_recursive(const For& f, const Value& items, Activation* environment,
                                       Context* context, int depth) {
  const Level level(&render_.meter.calls, render_.meter.limits().depth, "calls");
  const Ref<Activation> own(new Activation(&render_.meter, environment, f.function.slots));
  const Scope scope(this, own.get(), context);
  const Ref<Loop> loop(new Loop(*this, f, items, environment, context, depth));
  std::string text;
  std::string* const before = std::exchange(out_, &text);
  loop_over(f, loop.get());
  out_ = before;
  return text;
}

Flow Interpreter::loop_over(const For& f, Loop* loop) {
  struct Finish {
    Loop* loop;
    ~Finish() { loop->finish(); }
  };
  const bool has_variable = f.loop.hops >= 0;
  if (has_variable) variable(f.loop) = Value::missing();
  bool completed = false;  // an iteration ran to its end; jinja's else asks for that
  Flow flow = Flow::kNext;
  {
    const Finish finish{loop};
    Value item;
    while (loop->advance(&item)) {
      assign(f.target, item);
      if (has_variable) variable(f.loop) = Value::of(Kind::kObject, loop);
      enter(f.loads);
      flow = run(f.body);
      if (flow == Flow::kBreak) break;
      completed = completed || flow == Flow::kNext;
    }
  }
  leave(f.loads);
  if (f.otherwise.empty() || completed) return Flow::kNext;
  enter(f.else_loads);
  flow = run(f.otherwise);
  leave(f.else_loads);
  return flow;
}

void Interpreter::enter_test(const For& f, Activation* environment) {
  const Scope scope(this, environment, context_);
  enter(f.test_loads);
}

bool Interpreter::passes(const For& f, Activation* environment, const Value& item) {
  const Scope scope(this, environment, context_);
  assign(f.test_target, item);
  return truth(f.test);
}

void Interpreter::assign(const Expr* target, const Value& v) {
  switch (target->kind) {
    case NodeKind::kName:
      variable(static_cast<const Name*>(target)->slot) = v;
      return;
    case NodeKind::kNamespaceRef: {
      const auto& ref = *static_cast<const NamespaceRef*>(target);
      set_namespace_attribute(variable(ref.slot), ref.attribute, v);
      return;
    }
    default:
      break;
  }
  const auto& targets = static_cast<const Sequence*>(target)->items;
  if (!iterable(v)) fail(fmt::format("cannot unpack non-iterable {} object", type_name(v)));
  Walk walk(render_, v);
  std::vector<Value> items;
  Value item;
  while (items.size() <= targets.size() && walk.next(&item)) items.push_back(item);
  if (items.size() > targets.size()) {
    fail(fmt::format("too many values to unpack (expected {})", targets.size()));
  }
  if (items.size() < targets.size()) {
    fail(fmt::format("not enough values to unpack (expected {}, got {})", targets.size(),
                     items.size()));
  }
  for (size_t i = 0; i < targets.size(); ++i) assign(targets[i], items[i]);
}

void Interpreter::export_names(const Expr* target) {
  if (target->kind == NodeKind::kName) {
    const auto& name = *static_cast<const Name*>(target);
    context_->names[name.name] = variable(name.slot);
  } else if (target->kind == NodeKind::kSequence) {
    for (const Expr* item : static_cast<const Sequence*>(target)->items) export_names(item);
  }
}

void Interpreter::set(const Set& s) {
  for (const NamespaceRef* ref : s.namespaces) {
    if (!is_namespace(variable(ref->slot))) {
      fail("cannot assign attribute on non-namespace object");
    }
  }
  const Value v = eval(s.value);
  render_.line = s.line;
  assign(s.target, v);
  if (s.exported) export_names(s.target);
}

Flow Interpreter::set_block(const SetBlock& s) {
  enter(s.loads);
  Flow flow;
  Value v = render_.text(capture(s.body, &flow), render_.autoescape);
  if (flow != Flow::kNext) return flow;
  if (s.filter != nullptr) {
    std::swap(captured_, v);
    Value filtered = eval(s.filter);
    captured_ = std::move(v);
    v = std::move(filtered);
    if (render_.autoescape) v = render_.text(str(render_, v), true);
  }
  render_.line = s.line;
  assign(s.target, v);
  if (s.exported) export_names(s.target);
  leave(s.loads);
  return Flow::kNext;
}

Flow Interpreter::with(const With& w) {
  enter(w.loads);
  for (size_t i = 0; i < w.targets.size(); ++i) assign(w.targets[i], eval(w.values[i]));
  const Flow flow = run(w.body);
  leave(w.loads);
  return flow;
}

Flow Interpreter::autoescape(const Autoescape& a) {
  enter(a.loads);
  const bool before = std::exchange(render_.autoescape, truth(a.value));
  const Flow flow = run(a.body);
  render_.autoescape = before;
  leave(a.loads);
  return flow;
}

Flow Interpreter::filter_block(const FilterBlock& f) {
  enter(f.loads);
  Flow flow;
  Value text = render_.text(capture(f.body, &flow), render_.autoescape);
  if (flow != Flow::kNext) return flow;
  std::swap(captured_, text);
  const Value v = eval(f.filter);
  captured_ = std::move(text);
  write_value(v);
  leave(f.loads);
  return Flow::kNext;
}

void Interpreter::block(const Block& b) {
  Context* context = context_;
  if (b.scoped) {
    contexts_.push_back(std::make_unique<Context>());
    context = contexts_.back().get();
    context->parent = context_;
    for (const auto& [name, slot] : b.locals) {
      const Value& v = variable(slot);
      if (!v.is_missing()) context->names[name] = v;
    }
    render_.meter.step(static_cast<int64_t>(b.locals.size()));
  }
  run_block(b, context);
}

void Interpreter::run_block(const Block& b, Context* context) {
  if (b.required) fail(fmt::format("Required block '{}' not found", b.name));
  const Level level(&render_.meter.calls, render_.meter.limits().depth, "calls");
  const Ref<Activation> own(new Activation(&render_.meter, nullptr, b.function.slots));
  const Scope scope(this, own.get(), context);
  if (b.self.hops == 0) variable(b.self) = make_self(*this, context);
  if (b.super.hops == 0) {
    variable(b.super) =
        render_.undefined_hint(fmt::format("there is no parent block called '{}'.", b.name));
  }
  enter(b.function.loads);
  run(b.body);
}

Value Interpreter::call_block(const Block& b, Context* context) {
  std::string text;
  std::string* const before = std::exchange(out_, &text);
  run_block(b, context);
  out_ = before;
  return render_.text(std::move(text), render_.autoescape);
}

void Interpreter::keep_environment() {
  for (Activation* a = environment_; a != nullptr && !a->kept; a = a->parent) {
    a->kept = true;
    render_.keep(a);
  }
}

Value Interpreter::make_macro(const MacroNode& m) {
  keep_environment();
  return Value::of(Kind::kObject, new Macro(*this, m, environment_, context_));
}

void Interpreter::macro(const MacroNode& m) {
  const Value v = make_macro(m);
  variable(m.target) = v;
  if (m.exported) context_->names[m.name] = v;
}

void Interpreter::call_block_statement(const MacroNode& m) {
  const Value caller = make_macro(m);
  if (m.call == nullptr) {
    write_value(caller.native().call(render_, {}));
  } else {
    write_value(call(*static_cast<const Call*>(m.call), &caller));
  }
}

void Interpreter::bind_parameters(const MacroNode& m, Arguments* a) {
  const size_t count = m.parameters.size();
  const auto take_named = [&](const std::string& name) {
    for (auto it = a->named.begin(); it != a->named.end(); ++it) {
      if (it->first != name) continue;
      Value v = std::move(it->second);
      a->named.erase(it);
      return v;
    }
    return Value::missing();
  };
  bool found_caller = false;
  const size_t given = std::min(a->positional.size(), count);
  for (size_t i = 0; i < count; ++i) {
    const std::string& name = m.parameters[i]->name;
    variable(m.parameters[i]->slot) = i < given ? a->positional[i] : take_named(name);
    if (name == "caller" && (i >= given || given == count)) found_caller = true;
  }
  if (m.uses_caller && !found_caller) {
    Value caller = take_named("caller");
    if (caller.is_missing() || caller.is_none()) {
      caller = render_.undefined_hint("No caller defined");
    }
    if (m.caller.hops == 0) variable(m.caller) = std::move(caller);
  }
  if (m.uses_named) {
    DictBuilder named(render_);
    for (auto& [name, v] : a->named) named.set(render_.text(name), std::move(v));
    variable(m.named) = named.take();
  } else if (!a->named.empty()) {
    fail(fmt::format("macro '{}' takes no keyword argument '{}'", m.name, a->named[0].first));
  }
  if (m.uses_rest) {
    variable(m.rest) = render_.tuple(
        std::vector<Value>(a->positional.begin() + static_cast<long>(given), a->positional.end()));
  } else if (a->positional.size() > count) {
    fail(fmt::format("macro '{}' takes not more than {} argument(s)", m.name, count));
  }
}

Value Interpreter::call_macro(const MacroNode& m, Activation* environment, Context* context,
                              Arguments a, bool markup) {
  const Level level(&render_.meter.calls, render_.meter.limits().depth, "calls");
  const int line = render_.line;
  const Ref<Activation> own(new Activation(&render_.meter, environment, m.function.slots));
  const Scope scope(this, own.get(), context);
  bind_parameters(m, &a);
  enter(m.function.loads);
  for (size_t i = 0; i < m.parameters.size(); ++i) {
    Value& parameter = variable(m.parameters[i]->slot);
    if (!parameter.is_missing()) continue;
    const size_t required = m.parameters.size() - m.defaults.size();
    if (i >= required) {
      Value v = eval(m.defaults[i - required]);
      variable(m.parameters[i]->slot) = std::move(v);
    } else {
      parameter = render_.undefined_hint(
          fmt::format("parameter '{}' was not provided", m.parameters[i]->name));
    }
  }
  Flow flow;
  std::string text = capture(m.body, &flow);
  render_.line = line;
  return render_.text(std::move(text), markup);
}

}  // namespace deltad::jinja
