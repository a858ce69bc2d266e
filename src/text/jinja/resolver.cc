#include "text/jinja/resolver.h"

#include "text/jinja/children.h"
#include "text/jinja/filters.h"
#include "text/jinja/symbols.h"
#include "text/jinja/tests.h"

namespace deltad::jinja {

namespace {

// A block while its statements are resolved.
struct Frame {
  Symbols* symbols;
  bool toplevel = false;  // the template itself, also below if
  bool soft = false;      // below if: an unknown filter is an error only when it is reached
  bool in_loop = false;   // break and continue have a loop to act on
};

class Resolver {
 public:
  explicit Resolver(Tree* tree) : tree_(tree) {}

  void run() {
    FunctionScope root;
    Symbols symbols(nullptr, &root, 0);
    if (undeclared(tree_->body, {"self"}).count("self") != 0) {
      tree_->self = slot_of(&root, symbols.declare_parameter("self"));
    }
    symbols.visit_all(tree_->body);
    Frame frame{&symbols, true, false, false};
    body(frame, tree_->body);
    finish(&tree_->function, symbols);
    // Blocks do not see the variables around them, only what the template's top level has set.
    for (Block* b : tree_->blocks) block(b);
  }

 private:
  static Slot slot(const Frame& frame, const std::string& name) {
    return slot_of(frame.symbols->function(), *frame.symbols->find(name));
  }

  static void finish(Function* function, const Symbols& symbols) {
    function->slots = symbols.function()->slots;
    function->loads = symbols.loads();
  }

  void block(Block* b) {
    FunctionScope scope;
    Symbols symbols(nullptr, &scope, 0);
    const auto special = undeclared(b->body, {"self", "super"});
    if (special.count("self") != 0) b->self = slot_of(&scope, symbols.declare_parameter("self"));
    if (special.count("super") != 0) b->super = slot_of(&scope, symbols.declare_parameter("super"));
    symbols.visit_all(b->body);
    body({&symbols, false, false, false}, b->body);
    finish(&b->function, symbols);
  }

  void body(const Frame& frame, const Body& statements) {
    for (Stmt* s : statements) statement(frame, s);
  }

  void statement(const Frame& frame, Stmt* s) {
    switch (s->kind) {
      case NodeKind::kOutput: {
        auto* o = static_cast<Output*>(s);
        o->escape = escape_;
        for (Expr* e : o->parts) expression(frame, e);
        return;
      }
      case NodeKind::kFor:
        return for_loop(frame, static_cast<For*>(s));
      case NodeKind::kIf: {
        auto* i = static_cast<If*>(s);
        Frame soft = frame;
        soft.soft = true;
        for (auto& [test, branch] : i->branches) {
          expression(soft, test);
          body(soft, branch);
        }
        return body(soft, i->otherwise);
      }
      case NodeKind::kSet: {
        auto* set = static_cast<Set*>(s);
        expression(frame, set->target);
        expression(frame, set->value);
        set->exported = frame.toplevel;
        return;
      }
      case NodeKind::kSetBlock:
        return set_block(frame, static_cast<SetBlock*>(s));
      case NodeKind::kWith:
        return with(frame, static_cast<With*>(s));
      case NodeKind::kAutoescape:
        return autoescape(frame, static_cast<Autoescape*>(s));
      case NodeKind::kBlock: {
        auto* b = static_cast<Block*>(s);
        if (!b->scoped) return;
        for (const auto& [name, v] : frame.symbols->all_stores()) {
          b->locals.emplace_back(name, slot_of(frame.symbols->function(), v));
        }
        return;
      }
      case NodeKind::kMacro: {
        auto* m = static_cast<MacroNode*>(s);
        m->exported = frame.toplevel;
        m->target = slot(frame, m->name);
        return macro(frame, m);
      }
      case NodeKind::kCallBlock: {
        auto* m = static_cast<MacroNode*>(s);
        macro(frame, m);
        if (m->call != nullptr) expression(frame, m->call);
        return;
      }
      case NodeKind::kFilterBlock: {
        auto* f = static_cast<FilterBlock*>(s);
        Symbols symbols = inner(frame);
        symbols.visit_all(f->body);
        symbols.visit(f->filter);
        const Frame filtered{&symbols, false, false, frame.in_loop};
        body(filtered, f->body);
        expression(filtered, f->filter);
        f->loads = symbols.loads();
        return;
      }
      case NodeKind::kRefused:
        for (Expr* e : static_cast<Refused*>(s)->expressions) expression(frame, e);
        return;
      case NodeKind::kBreak:
      case NodeKind::kContinue:
        if (!frame.in_loop) {
          fail(s->kind == NodeKind::kBreak ? "'break' outside loop"
                                           : "'continue' not properly in loop",
               s->line);
        }
        return;
      default:
        return expression(frame, s);
    }
  }

  static Symbols inner(const Frame& frame) {
    return Symbols(frame.symbols, frame.symbols->function(), frame.symbols->tag() + 1);
  }

  static bool has_scoped_block(const Node* node) {
    if (node->kind == NodeKind::kBlock && static_cast<const Block*>(node)->scoped) return true;
    bool found = false;
    for_each_child(node, [&](Node* child) { found = found || has_scoped_block(child); });
    return found;
  }

  static void refuse_loop_targets(const Node* node) {
    if (node->kind == NodeKind::kName) {
      const auto& name = *static_cast<const Name*>(node);
      if (name.use == NameUse::kStore && name.name == "loop") {
        fail("Can't assign to special loop variable in for-loop target", name.line);
      }
    }
    for_each_child(node, [](Node* child) { refuse_loop_targets(child); });
  }

  void for_loop(const Frame& frame, For* f) {
    FunctionScope own;
    own.parent = frame.symbols->function();
    FunctionScope* function = f->recursive ? &own : own.parent;
    const int tag = frame.symbols->tag() + 1;
    if (!in_checked_loop_) refuse_loop_targets(f);  // looks at loops inside too
    const bool outermost = !in_checked_loop_;
    in_checked_loop_ = true;

    Symbols loop(frame.symbols, function, tag);
    if (f->recursive || undeclared(f->body, {"loop"}).count("loop") != 0 || has_scoped_block(f)) {
      f->loop = slot_of(function, loop.declare_parameter("loop"));
    }
    loop.declare_parameters(f->target);
    loop.visit_all(f->body);
    Symbols otherwise(frame.symbols, function, tag);
    otherwise.visit_all(f->otherwise);

    expression(frame, f->iterable);
    if (f->test != nullptr) {
      // The test runs between iterations, so its variables are apart from the body's.
      Symbols test(frame.symbols, own.parent, --test_tag_);
      test.declare_parameters(f->target);
      test.visit(f->test);
      const Frame test_frame{&test, false, false, false};
      f->test_target = copy_target(f->target);
      expression(test_frame, f->test_target);
      expression(test_frame, f->test);
      f->test_loads = test.loads();
    }
    expression({&loop, false, false, false}, f->target);
    body({&loop, false, false, true}, f->body);
    body({&otherwise, false, false, frame.in_loop && !f->recursive}, f->otherwise);
    f->loads = loop.loads();
    f->else_loads = otherwise.loads();
    f->function.slots = own.slots;
    if (outermost) in_checked_loop_ = false;
  }

  Expr* copy_target(const Expr* e) {
    if (e->kind == NodeKind::kName) {
      return tree_->make<Name>(e->line, static_cast<const Name*>(e)->name, NameUse::kStore);
    }
    auto* copy = tree_->make<Sequence>(e->line, true);
    for (const Expr* item : static_cast<const Sequence*>(e)->items) {
      copy->items.push_back(copy_target(item));
    }
    return copy;
  }

  void set_block(const Frame& frame, SetBlock* s) {
    Symbols symbols = inner(frame);
    symbols.visit_all(s->body);
    if (s->filter != nullptr) symbols.visit(s->filter);
    const Frame block{&symbols, false, false, frame.in_loop};
    body(block, s->body);
    expression(frame, s->target);
    if (s->filter != nullptr) expression(block, s->filter);
    s->exported = frame.toplevel;
    s->loads = symbols.loads();
  }

  void with(const Frame& frame, With* w) {
    Symbols symbols = inner(frame);
    for (const Expr* target : w->targets) symbols.declare_parameters(target);
    symbols.visit_all(w->body);
    const Frame block{&symbols, false, false, frame.in_loop};
    for (Expr* value : w->values) expression(frame, value);
    for (Expr* target : w->targets) expression(block, target);
    body(block, w->body);
    w->loads = symbols.loads();
  }

  void autoescape(const Frame& frame, Autoescape* a) {
    Symbols symbols = inner(frame);
    symbols.visit(a->value);
    symbols.visit_all(a->body);
    const Frame block{&symbols, false, false, frame.in_loop};
    expression(block, a->value);
    const Escape before = escape_;
    if (a->value->kind != NodeKind::kConst) {
      escape_ = Escape::kDynamic;
    } else if (escape_ != Escape::kDynamic) {
      const Value& v = static_cast<const Const*>(a->value)->value;
      const bool off = v.is_none() || (v.is_number() && v.as_float() == 0) ||
                       (v.is_string() && v.text().empty());
      escape_ = off ? Escape::kOff : Escape::kOn;
    }
    body(block, a->body);
    escape_ = before;
    a->loads = symbols.loads();
  }

  void macro(const Frame& frame, MacroNode* m) {
    FunctionScope scope;
    scope.parent = frame.symbols->function();
    Symbols symbols(frame.symbols, &scope, frame.symbols->tag() + 1);
    const auto analyze = [&] {
      for (const Name* p : m->parameters) symbols.declare_parameter(p->name);
      for (const Expr* e : m->defaults) symbols.visit(e);
      symbols.visit_all(m->body);
    };
    analyze();
    const auto special = undeclared(m->body, {"caller", "kwargs", "varargs"});
    size_t caller = m->parameters.size();
    bool own_named = false, own_rest = false;
    for (size_t i = 0; i < m->parameters.size(); ++i) {
      if (m->parameters[i]->name == "caller") caller = i;
      own_named = own_named || m->parameters[i]->name == "kwargs";
      own_rest = own_rest || m->parameters[i]->name == "varargs";
    }
    if (special.count("caller") != 0) {
      m->uses_caller = true;
      if (caller == m->parameters.size()) {
        m->caller = slot_of(&scope, symbols.declare_parameter("caller"));
      } else if (caller < m->parameters.size() - m->defaults.size()) {
        fail(
            "When defining macros or call blocks the special \"caller\" argument must be omitted "
            "or be given a default.",
            m->line);
      }
    }
    if (special.count("kwargs") != 0 && !own_named) {
      m->uses_named = true;
      m->named = slot_of(&scope, symbols.declare_parameter("kwargs"));
    }
    if (special.count("varargs") != 0 && !own_rest) {
      m->uses_rest = true;
      m->rest = slot_of(&scope, symbols.declare_parameter("varargs"));
    }
    analyze();
    const Frame inside{&symbols, false, false, false};
    for (Name* p : m->parameters) expression(inside, p);
    for (Expr* e : m->defaults) expression(inside, e);
    const bool loop_before = in_checked_loop_;
    body(inside, m->body);
    in_checked_loop_ = loop_before;
    finish(&m->function, symbols);
  }

  void expression(const Frame& frame, Expr* e) {
    switch (e->kind) {
      case NodeKind::kName:
        static_cast<Name*>(e)->slot = slot(frame, static_cast<Name*>(e)->name);
        return;
      case NodeKind::kNamespaceRef:
        static_cast<NamespaceRef*>(e)->slot = slot(frame, static_cast<NamespaceRef*>(e)->name);
        return;
      case NodeKind::kConcat:
        static_cast<Concat*>(e)->escape = escape_;
        break;
      case NodeKind::kFilter: {
        auto* f = static_cast<Filter*>(e);
        f->function = find_filter(f->name);
        if (f->function == nullptr && !frame.soft) {
          fail(fmt::format("No filter named '{}'.", f->name), f->line);
        }
        break;
      }
      case NodeKind::kTest: {
        auto* t = static_cast<Test*>(e);
        t->function = find_test(t->name);
        if (t->function == nullptr && !frame.soft) {
          fail(fmt::format("No test named '{}'.", t->name), t->line);
        }
        break;
      }
      case NodeKind::kCondition: {
        Frame soft = frame;
        soft.soft = true;
        for_each_child(e, [&](Node* child) { expression(soft, child); });
        return;
      }
      default:
        break;
    }
    for_each_child(e, [&](Node* child) { expression(frame, child); });
  }

  Tree* tree_;
  Escape escape_ = Escape::kOff;
  int test_tag_ = 0;              // tags of tests: below zero, each its own
  bool in_checked_loop_ = false;  // a loop around this one has been searched for its targets
};

}  // namespace

void resolve(Tree* tree) { Resolver(tree).run(); }

}  // namespace deltad::jinja
