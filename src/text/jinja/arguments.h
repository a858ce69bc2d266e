// Matches the arguments of a call with the parameters of a function, as Python does.
#pragma once

#include <initializer_list>
#include <string_view>

#include "text/jinja/render.h"

namespace deltad::jinja {

class Parameters {
 public:
  // names: in order; the first `required` must be given. A name that begins with '/' can be given
  // by position only. Fails as Python does on what is missing or too much.
  Parameters(std::string_view function, Arguments& arguments,
             std::initializer_list<std::string_view> names, size_t required = 0);

  bool has(size_t i) const { return !values_[i].is_missing(); }
  const Value& operator[](size_t i) const { return values_[i]; }
  // The argument, or this where it is left out.
  Value get(size_t i, Value otherwise) const { return has(i) ? values_[i] : otherwise; }

 private:
  std::vector<Value> values_;
};

}  // namespace deltad::jinja
