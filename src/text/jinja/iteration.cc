#include "text/jinja/iteration.h"

#include <algorithm>

#include "text/jinja/repr.h"
#include "text/jinja/unicode.h"

namespace deltad::jinja {

namespace {

class LazyIterator final : public Iterator {
 public:
  LazyIterator(Meter* meter, Render& render, const char* name, const Value& source, int depth,
               ItemStep step)
      : Iterator(meter, std::max(source.depth(), depth) + 1, "generator", name),
        walk_(render, source),
        step_(std::move(step)) {}

  bool next(Render& render, Value* out) override {
    const Level level(&render.meter.nesting, render.meter.max_nesting(), "iterators");
    if (running_) fail("generator already executing");
    running_ = true;
    bool found = false;
    while (!found && walk_.next(out)) found = step_(render, out);
    running_ = false;
    return found;
  }

 private:
  Walk walk_;
  ItemStep step_;
  bool running_ = false;
};

class VectorIterator final : public Iterator {
 public:
  VectorIterator(Meter* meter, Value list, const char* type, const char* name)
      : Iterator(meter, list.depth() + 1, type, name), list_(std::move(list)) {}

  bool next(Render&, Value* out) override {
    if (at_ == list_.items().size()) return false;
    *out = list_.items()[at_++];
    return true;
  }

 private:
  Value list_;
  size_t at_ = 0;
};

}  // namespace

bool iterable(const Value& v) {
  switch (v.kind()) {
    case Kind::kUndefined:
    case Kind::kString:
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
    case Kind::kRange:
    case Kind::kView:
    case Kind::kIterator:
      return true;
    default:
      return false;
  }
}

std::optional<Int> length_of(const Value& v) {
  switch (v.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString:
      return static_cast<Int>(v.string().length);
    case Kind::kList:
    case Kind::kTuple:
      return static_cast<Int>(v.items().size());
    case Kind::kDict:
      return static_cast<Int>(v.dict().entries.size());
    case Kind::kRange:
      return v.range().length;
    case Kind::kView:
      return static_cast<Int>(v.view().dict.dict().entries.size());
    default:
      return std::nullopt;
  }
}

Walk::Walk(Render& render, Value source) : render_(render), source_(std::move(source)) {
  if (!iterable(source_)) fail(fmt::format("'{}' object is not iterable", type_name(source_)));
}

bool Walk::next(Value* out) {
  render_.meter.step();
  switch (source_.kind()) {
    case Kind::kString: {
      const std::string& s = source_.text();
      if (at_ >= s.size()) return false;
      const size_t start = at_;
      utf8_next(s, &at_);
      *out = render_.text(s.substr(start, at_ - start), source_.string().markup);
      return true;
    }
    case Kind::kList:
    case Kind::kTuple:
      if (at_ == source_.items().size()) return false;
      *out = source_.items()[at_++];
      return true;
    case Kind::kDict:
      if (at_ == source_.dict().entries.size()) return false;
      *out = source_.dict().entries[at_++].first;
      return true;
    case Kind::kRange:
      if (static_cast<Int>(at_) >= source_.range().length) return false;
      *out = Value::integer(source_.range().at(static_cast<Int>(at_++)));
      return true;
    case Kind::kView: {
      const View& view = source_.view();
      const Entries& entries = view.dict.dict().entries;
      if (at_ == entries.size()) return false;
      const auto& [key, value] = entries[at_++];
      *out = view.part == View::Part::kKeys     ? key
             : view.part == View::Part::kValues ? value
                                                : render_.pair(key, value);
      return true;
    }
    case Kind::kIterator:
      return source_.iterator().next(render_, out);
    default:
      return false;  // undefined: as an empty list
  }
}

std::vector<Value> to_vector(Render& render, const Value& v) {
  if (v.is_sequence()) {
    render.meter.step(static_cast<int64_t>(v.items().size() >> 4));
    return v.items();
  }
  std::vector<Value> items;
  Walk walk(render, v);
  Value item;
  while (walk.next(&item)) items.push_back(std::move(item));
  return items;
}

Value lazy(Render& render, const char* name, const Value& source, int depth, ItemStep step) {
  return render.make<LazyIterator>(Kind::kIterator, render, name, source, depth, std::move(step));
}

Value over(Render& render, const char* name, std::vector<Value> items, const char* type) {
  return render.make<VectorIterator>(Kind::kIterator, render.list(std::move(items)), type, name);
}

}  // namespace deltad::jinja
