// Render: the state of one rendering: limits, the line being executed, and the making of values.
// Lives on the stack of the thread that renders.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace deltad::jinja {

class Render {
 public:
  Render(const TemplateLimits& limits, int64_t now_seconds) : meter(limits), now(now_seconds) {}
  ~Render();
  Render(const Render&) = delete;
  Render& operator=(const Render&) = delete;

  template <typename T, typename... Args>
  Value make(Kind kind, Args&&... args) {
    return Value::of(kind, new T(&meter, std::forward<Args>(args)...));
  }

  Value text(std::string s, bool markup = false);
  Value list(std::vector<Value> items);
  Value tuple(std::vector<Value> items);
  Value pair(Value first, Value second);

  Value undefined_name(std::string_view name);
  // No such attribute or item; key names it.
  Value undefined_member(const Value& object, const Value& key);
  Value undefined_hint(std::string message);

  // An object that can come to refer to itself; emptied when the render ends.
  void keep(Object* object) { kept_.emplace_back(object); }

  Meter meter;
  int line = 1;
  bool autoescape = false;
  const int64_t now;  // unix seconds

 private:
  std::vector<Ref<Object>> kept_;
};

}  // namespace deltad::jinja
