#include "text/jinja/render.h"

#include "text/jinja/repr.h"

namespace deltad::jinja {

Render::~Render() {
  // All are still held by kept_, so emptying one never frees another.
  for (const Ref<Object>& object : kept_) object->clear();
}

Value Render::text(std::string s, bool markup) {
  meter.check_size(s.size());
  meter.work(s.size());
  return make<String>(Kind::kString, std::move(s), markup);
}

Value Render::list(std::vector<Value> items) {
  meter.step(static_cast<int64_t>(items.size() >> 4));
  return make<List>(Kind::kList, std::move(items), false);
}

Value Render::tuple(std::vector<Value> items) {
  meter.step(static_cast<int64_t>(items.size() >> 4));
  return make<List>(Kind::kTuple, std::move(items), false);
}

Value Render::pair(Value first, Value second) {
  std::vector<Value> items;
  items.reserve(2);
  items.push_back(std::move(first));
  items.push_back(std::move(second));
  return make<List>(Kind::kTuple, std::move(items), false);
}

Value Render::undefined_name(std::string_view name) {
  return make<UndefinedInfo>(Kind::kUndefined, UndefinedInfo::Why::kName, std::string(),
                             text(std::string(name)));
}

Value Render::undefined_member(const Value& object, const Value& key) {
  // Other keys are not kept: they could hold values of any depth.
  const bool keep_key = key.is_string() || key.is_integral();
  return make<UndefinedInfo>(Kind::kUndefined, UndefinedInfo::Why::kAttribute, object_label(object),
                             keep_key ? key : Value());
}

Value Render::undefined_hint(std::string message) {
  return make<UndefinedInfo>(Kind::kUndefined, UndefinedInfo::Why::kHint, std::move(message),
                             Value());
}

}  // namespace deltad::jinja
