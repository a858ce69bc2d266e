// Walking over values: what `for` and the filters do with lists, strings, dicts, ranges, iterators.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "text/jinja/render.h"

namespace deltad::jinja {

bool iterable(const Value& v);
// len(v), or nothing where Python's would fail.
std::optional<Int> length_of(const Value& v);

// A walk over an iterable; fails on others. Every item costs a step.
class Walk {
 public:
  Walk(Render& render, Value source);
  bool next(Value* out);

 private:
  Render& render_;
  Value source_;
  size_t at_ = 0;
};

std::vector<Value> to_vector(Render& render, const Value& v);

// An iterator that maps or drops the items of another: step gives true and the item in *item, or
// false to drop it.
using ItemStep = std::function<bool(Render&, Value* item)>;
// depth: of what step holds; name: of the Python function whose generator it stands for.
Value lazy(Render& render, const char* name, const Value& source, int depth, ItemStep step);
// An iterator over items made already: a generator, or with type one of Python's others.
Value over(Render& render, const char* name, std::vector<Value> items,
           const char* type = "generator");

}  // namespace deltad::jinja
