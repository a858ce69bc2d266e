#include "text/jinja/loop.h"

#include <utility>

#include "text/jinja/compare.h"
#include "text/jinja/number_text.h"
#include "text/jinja/repr.h"

namespace deltad::jinja {

namespace {

// loop.cycle and loop.changed
class LoopMethod final : public Native {
 public:
  LoopMethod(Meter* meter, Loop* loop, bool cycle)
      : Native(meter, sizeof(LoopMethod), loop->depth()), loop_(loop), cycle_(cycle) {}
  std::string type_name() const override { return "method"; }
  std::string repr(Render&) override {
    return fmt::format("<bound method LoopContext.{}>", cycle_ ? "cycle" : "changed");
  }
  bool callable() const override { return true; }
  Value call(Render& render, Arguments a) override {
    if (!a.named.empty()) {
      fail(fmt::format("LoopContext.{}() got an unexpected keyword argument '{}'",
                       cycle_ ? "cycle" : "changed", a.named[0].first));
    }
    return cycle_ ? loop_->cycle(a) : loop_->changed(render, std::move(a));
  }

 private:
  const Ref<Loop> loop_;
  const bool cycle_;
};

}  // namespace

Loop::Loop(Interpreter& interpreter, const For& node, const Value& items, Activation* environment,
           Context* context, int depth)
    : Native(&interpreter.render().meter, sizeof(Loop), items.depth() + 1),
      interpreter_(interpreter),
      node_(node),
      environment_(environment),
      context_(context),
      depth_(depth),
      items_(items),
      walk_(std::in_place, interpreter.render(), items) {}

bool Loop::pull(Value* item) {
  if (rest_at_ < rest_.size()) {
    *item = rest_[rest_at_++];
    return true;
  }
  if (!walk_) return false;
  if (node_.test != nullptr && !std::exchange(entered_test_, true)) {
    interpreter_.enter_test(node_, environment_);
  }
  while (walk_->next(item)) {
    if (node_.test == nullptr || interpreter_.passes(node_, environment_, *item)) return true;
  }
  walk_.reset();
  return false;
}

bool Loop::peek() {
  if (!next_.is_missing()) return true;
  Value item;
  if (!pull(&item)) return false;
  next_ = std::move(item);
  return true;
}

bool Loop::advance(Value* item) {
  if (!next_.is_missing()) {
    *item = std::exchange(next_, Value::missing());
  } else if (!pull(item)) {
    return false;
  }
  ++index_;
  previous_ = std::exchange(current_, *item);
  return true;
}

void Loop::finish() {
  // Also the items: one that was computed in the loop may lead back to it.
  walk_.reset();
  rest_.clear();
  rest_at_ = 0;
  next_ = current_ = previous_ = Value::missing();
}

Int Loop::length() {
  if (length_) return *length_;
  if (node_.test == nullptr) length_ = length_of(items_);
  if (!length_) {
    std::vector<Value> rest;
    Value item;
    while (pull(&item)) rest.push_back(std::move(item));
    rest_ = std::move(rest);
    rest_at_ = 0;
    length_ = static_cast<Int>(rest_.size()) + index_ + 1 + (next_.is_missing() ? 0 : 1);
  }
  return *length_;
}

std::string Loop::repr(Render&) {
  return "<LoopContext " + int_text(index_ + 1) + "/" + int_text(length()) + ">";
}

Value Loop::attribute(Render& render, std::string_view name) {
  if (name == "index") return Value::integer(index_ + 1);
  if (name == "index0") return Value::integer(index_);
  if (name == "first") return Value::boolean(index_ == 0);
  if (name == "last") return Value::boolean(!peek());
  if (name == "length") return Value::integer(length());
  if (name == "revindex") return Value::integer(length() - index_);
  if (name == "revindex0") return Value::integer(length() - index_ - 1);
  if (name == "depth") return Value::integer(depth_ + 1);
  if (name == "depth0") return Value::integer(depth_);
  if (name == "previtem") {
    return index_ == 0 ? render.undefined_hint("there is no previous item") : previous_;
  }
  if (name == "nextitem") {
    return peek() ? next_ : render.undefined_hint("there is no next item");
  }
  if (name == "cycle" || name == "changed") {
    return render.make<LoopMethod>(Kind::kObject, this, name == "cycle");
  }
  return Value::missing();
}

Value Loop::cycle(Arguments& a) {
  if (a.positional.empty()) fail("no items for cycling given");
  const auto count = static_cast<Int>(a.positional.size());
  return a.positional[static_cast<size_t>(((index_ % count) + count) % count)];
}

Value Loop::changed(Render& render, Arguments a) {
  // The values may lead back to this loop.
  if (!std::exchange(kept_, true)) render.keep(this);
  const Value values = render.tuple(std::move(a.positional));
  if (!last_changed_.is_missing() && equal(render, last_changed_, values)) {
    return Value::boolean(false);
  }
  last_changed_ = values;
  return Value::boolean(true);
}

Value Loop::call(Render& render, Arguments a) {
  if (!node_.recursive) {
    fail("The loop must have the 'recursive' marker to be called recursively.");
  }
  if (a.positional.size() != 1 || !a.named.empty()) fail("loop() takes one argument");
  return render.text(
      interpreter_.run_recursive(node_, a.positional[0], environment_, context_, depth_ + 1),
      render.autoescape);
}

void Loop::clear() {
  finish();
  last_changed_ = Value::missing();
}

}  // namespace deltad::jinja
