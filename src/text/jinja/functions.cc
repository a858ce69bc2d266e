#include "text/jinja/functions.h"

#include "text/jinja/arguments.h"
#include "text/jinja/compare.h"
#include "text/jinja/iteration.h"
#include "text/jinja/operators.h"
#include "text/jinja/repr.h"
#include "text/jinja/strftime.h"

namespace deltad::jinja {

namespace {

using Implementation = Value (*)(Render&, Arguments&);

class FunctionValue final : public Native {
 public:
  FunctionValue(Meter* meter, std::string name, Implementation implementation)
      : Native(meter, sizeof(FunctionValue), 0),
        name_(std::move(name)),
        implementation_(implementation) {}
  std::string type_name() const override { return "function"; }
  std::string repr(Render&) override { return address_text("function " + name_, this); }
  Value attribute(Render& render, std::string_view name) override;
  bool callable() const override { return true; }
  Value call(Render& render, Arguments arguments) override {
    return implementation_(render, arguments);
  }

 private:
  const std::string name_;
  const Implementation implementation_;
};

class Namespace final : public Native {
 public:
  explicit Namespace(Meter* meter) : Native(meter, sizeof(Namespace), 0) {}
  std::string type_name() const override { return "jinja2.utils.Namespace"; }
  std::string repr(Render& render) override {
    const Level level(&render.meter.nesting, render.meter.max_nesting(), "values");
    std::string out = "<Namespace {";
    for (size_t i = 0; i < attributes_.size(); ++i) {
      if (i > 0) out += ", ";
      append_repr(render, &out, attributes_[i].first);
      out += ": ";
      append_repr(render, &out, attributes_[i].second);
    }
    render.meter.check_size(out.size());
    return out + "}>";
  }
  Value attribute(Render& render, std::string_view name) override {
    render.meter.step(static_cast<int64_t>(attributes_.size() >> 3));
    for (const auto& [key, v] : attributes_) {
      if (key.is_string() && key.text() == name) return v;
    }
    return Value::missing();
  }
  void clear() override { attributes_.clear(); }
  void fill(const Dict& dict) {
    for (const auto& [name, v] : dict.entries) check_name(name);
    attributes_ = dict.entries;
  }
  void set(const Value& name, const Value& v) {
    check_name(name);
    for (auto& [key, value] : attributes_) {
      if (key.same(name) || (key.is_string() && name.is_string() && key.text() == name.text())) {
        value = v;
        return;
      }
    }
    attributes_.emplace_back(name, v);
  }

 private:
  static void check_name(const Value& name) {
    if (!name.is_string() || name.text().empty() || name.text()[0] != '_') return;
    fail(fmt::format(
        "Chat templates cannot store underscore-prefixed attributes on a namespace, but got '{}'. "
        "Please rename the attribute.",
        name.text()));
  }

  Entries attributes_;
};

class Cycler final : public Native {
 public:
  Cycler(Meter* meter, Value items)
      : Native(meter, sizeof(Cycler), items.depth() + 1), items_(std::move(items)) {}
  std::string type_name() const override { return "jinja2.utils.Cycler"; }
  std::string repr(Render&) override { return address_text("jinja2.utils.Cycler object", this); }
  Value attribute(Render& render, std::string_view name) override;
  const Value& current() const { return items_.items()[at_]; }
  void advance() { at_ = (at_ + 1) % items_.items().size(); }
  void reset() { at_ = 0; }

 private:
  const Value items_;
  size_t at_ = 0;
};

class CyclerMethod final : public Native {
 public:
  CyclerMethod(Meter* meter, Cycler* cycler, bool next)
      : Native(meter, sizeof(CyclerMethod), cycler->depth()), cycler_(cycler), next_(next) {}
  std::string type_name() const override { return "method"; }
  std::string repr(Render&) override { return address_text("bound method Cycler", this); }
  bool callable() const override { return true; }
  Value call(Render&, Arguments a) override {
    Parameters(next_ ? "next" : "reset", a, {});
    if (!next_) {
      cycler_->reset();
      return Value();
    }
    Value v = cycler_->current();
    cycler_->advance();
    return v;
  }

 private:
  const Ref<Cycler> cycler_;
  const bool next_;
};

Value Cycler::attribute(Render& render, std::string_view name) {
  if (name == "current") return current();
  if (name == "items") return items_;
  if (name == "pos") return Value::integer(static_cast<Int>(at_));
  if (name == "next" || name == "reset") {
    return render.make<CyclerMethod>(Kind::kObject, this, name == "next");
  }
  return Value::missing();
}

class Joiner final : public Native {
 public:
  Joiner(Meter* meter, Value separator)
      : Native(meter, sizeof(Joiner), separator.depth() + 1), separator_(std::move(separator)) {}
  std::string type_name() const override { return "jinja2.utils.Joiner"; }
  std::string repr(Render&) override { return address_text("jinja2.utils.Joiner object", this); }
  Value attribute(Render&, std::string_view name) override {
    if (name == "sep") return separator_;
    if (name == "used") return Value::boolean(used_);
    return Value::missing();
  }
  bool callable() const override { return true; }
  Value call(Render& render, Arguments a) override {
    Parameters("joiner", a, {});
    if (used_) return separator_;
    used_ = true;
    return render.text("");
  }

 private:
  const Value separator_;
  bool used_ = false;
};

Value make_range(Render& render, Arguments& a) {
  if (!a.named.empty()) fail("range() takes no keyword arguments");
  if (a.positional.empty()) fail("range expected at least 1 argument, got 0");
  const Parameters p("range", a, {"/start", "/stop", "/step"}, 1);
  const auto part = [&](size_t i) {
    const Int v = index_of(p[i], "range()");
    if (v != static_cast<int64_t>(v)) fail("Python int too large to convert to C ssize_t");
    return v;
  };
  const Int start = p.has(1) ? part(0) : 0;
  const Int stop = p.has(1) ? part(1) : part(0);
  const Int step = p.has(2) ? part(2) : 1;
  if (step == 0) fail("range() arg 3 must not be zero");
  Value range = render.make<Range>(Kind::kRange, start, stop, step);
  constexpr Int kMaxRange = 100000;
  if (range.range().length > kMaxRange) {
    fail("Range too big. The sandbox blocks ranges larger than MAX_RANGE (100000).");
  }
  return range;
}

// dict(mapping or pairs, name=value, …)
void fill_dict(Render& render, Arguments& a, const std::function<void(Value, Value)>& set) {
  if (a.positional.size() > 1) {
    fail(fmt::format("dict expected at most 1 argument, got {}", a.positional.size()));
  }
  if (!a.positional.empty() && a.positional[0].is(Kind::kDict)) {
    for (const auto& [k, v] : a.positional[0].dict().entries) set(k, v);
  } else if (!a.positional.empty()) {
    Walk walk(render, a.positional[0]);
    Value item;
    while (walk.next(&item)) {
      std::vector<Value> pair = to_vector(render, item);
      if (pair.size() != 2) {
        fail(fmt::format("dictionary update sequence element has length {}; 2 is required",
                         pair.size()));
      }
      set(std::move(pair[0]), std::move(pair[1]));
    }
  }
  for (auto& [name, v] : a.named) set(render.text(name), std::move(v));
}

Value make_dict(Render& render, Arguments& a) {
  DictBuilder builder(render);
  fill_dict(render, a, [&](Value k, Value v) { builder.set(std::move(k), std::move(v)); });
  return builder.take();
}

Value dict_from_keys(Render& render, Arguments& a) {
  const Parameters p("fromkeys", a, {"/iterable", "/value"}, 1);
  DictBuilder builder(render);
  Walk walk(render, p[0]);
  Value key;
  while (walk.next(&key)) builder.set(key, p.get(1, Value()));
  return builder.take();
}

Value make_namespace(Render& render, Arguments& a) {
  const Value made = make_dict(render, a);
  const Ref<Namespace> space(new Namespace(&render.meter));
  render.keep(space.get());
  space->fill(made.dict());
  return Value::of(Kind::kObject, space.get());
}

Value make_cycler(Render& render, Arguments& a) {
  if (!a.named.empty()) fail("cycler() takes no keyword arguments");
  if (a.positional.empty()) fail("at least one item has to be provided");
  return render.make<Cycler>(Kind::kObject, render.tuple(std::move(a.positional)));
}

Value make_joiner(Render& render, Arguments& a) {
  const Parameters p("joiner", a, {"sep"});
  return render.make<Joiner>(Kind::kObject, p.has(0) ? p[0] : render.text(", "));
}

Value raise_exception(Render& render, Arguments& a) {
  const Parameters p("raise_exception", a, {"message"}, 1);
  fail(str(render, p[0]));
}

Value strftime_now(Render& render, Arguments& a) {
  const Parameters p("strftime_now", a, {"format"}, 1);
  if (!p[0].is_string()) {
    fail(fmt::format("strftime() argument 1 must be str, not {}", type_name(p[0])));
  }
  return render.text(format_time(render, p[0].text(), render.now));
}

Value FunctionValue::attribute(Render& render, std::string_view name) {
  if (name_ == "dict" && name == "fromkeys") {
    return render.make<FunctionValue>(Kind::kObject, "fromkeys", dict_from_keys);
  }
  return Value::missing();
}

}  // namespace

void add_globals(Render& render, std::unordered_map<std::string, Value>* names) {
  const auto add = [&](const char* name, Implementation implementation) {
    names->emplace(name, render.make<FunctionValue>(Kind::kObject, name, implementation));
  };
  add("range", make_range);
  add("dict", make_dict);
  add("namespace", make_namespace);
  add("cycler", make_cycler);
  add("joiner", make_joiner);
  add("raise_exception", raise_exception);
  add("strftime_now", strftime_now);
}

bool is_namespace(const Value& v) {
  return v.is(Kind::kObject) && dynamic_cast<Namespace*>(v.object()) != nullptr;
}

void set_namespace_attribute(const Value& object, const std::string& name, const Value& v) {
  auto& space = static_cast<Namespace&>(object.native());
  // The key is not counted: it is a part of the template, and so are all of them.
  const Value key = Value::of(Kind::kString, new String(nullptr, name, false));
  space.set(key, v);
}

}  // namespace deltad::jinja
