#include "text/jinja/value.h"

#include <algorithm>

#include "text/jinja/number_text.h"
#include "text/jinja/repr.h"
#include "text/jinja/unicode.h"

namespace deltad::jinja {

namespace {

// Deeper containers are refused, because walking and freeing a value recurses.
int checked_depth(int depth) {
  constexpr int kMaxDepth = 200;
  if (depth > kMaxDepth) fail(fmt::format("values nested deeper than {}", kMaxDepth));
  return depth;
}

int depth_of(const std::vector<Value>& items) {
  int depth = 0;
  for (const Value& v : items) depth = std::max(depth, v.depth());
  return depth + 1;
}

int depth_of(const Entries& entries) {
  int depth = 0;
  for (const auto& [k, v] : entries) depth = std::max({depth, k.depth(), v.depth()});
  return depth + 1;
}

Int range_length(Int start, Int stop, Int step) {
  if (step > 0) return start < stop ? (stop - start - 1) / step + 1 : 0;
  return start > stop ? (start - stop - 1) / -step + 1 : 0;
}

}  // namespace

Object::Object(Meter* meter, size_t bytes, int depth)
    : meter_(meter), bytes_(bytes), depth_(static_cast<int16_t>(checked_depth(depth))) {
  if (meter_ != nullptr) meter_->hold(bytes_);
}

Object::~Object() {
  if (meter_ != nullptr) meter_->drop(bytes_);
}

double Value::as_float() const {
  if (kind_ == Kind::kFloat) {
    double d;
    std::memcpy(&d, &low_, sizeof d);
    return d;
  }
  return static_cast<double>(as_int());
}

const String& Value::string() const { return *static_cast<String*>(object()); }
const std::string& Value::text() const { return string().text; }
const List& Value::list() const { return *static_cast<List*>(object()); }
const std::vector<Value>& Value::items() const { return list().items; }
const Dict& Value::dict() const { return *static_cast<Dict*>(object()); }
const Range& Value::range() const { return *static_cast<Range*>(object()); }
const View& Value::view() const { return *static_cast<View*>(object()); }
Iterator& Value::iterator() const { return *static_cast<Iterator*>(object()); }
Native& Value::native() const { return *static_cast<Native*>(object()); }
const UndefinedInfo& Value::undefined() const { return *static_cast<UndefinedInfo*>(object()); }

String::String(Meter* meter, std::string t, bool safe)
    : Object(meter, sizeof(String) + t.size(), 0),
      text(std::move(t)),
      length(utf8_length(text)),
      markup(safe) {}

List::List(Meter* meter, std::vector<Value> v, bool is_group)
    : Object(meter, sizeof(List) + v.size() * sizeof(Value), depth_of(v)),
      items(std::move(v)),
      group(is_group) {}

Dict::Dict(Meter* meter, Entries e, std::unordered_multimap<size_t, size_t> i)
    : Object(meter,
             sizeof(Dict) + e.size() * sizeof(Entries::value_type) + i.size() * 4 * sizeof(size_t),
             depth_of(e)),
      entries(std::move(e)),
      index(std::move(i)) {}

Range::Range(Meter* meter, Int a, Int b, Int c)
    : Object(meter, sizeof(Range), 0), start(a), stop(b), step(c), length(range_length(a, b, c)) {}

View::View(Meter* meter, Value d, Part p)
    : Object(meter, sizeof(View), d.depth() + 1), dict(std::move(d)), part(p) {}

Value Native::attribute(Render&, std::string_view) { return Value::missing(); }
Value Native::item(Render&, const Value&) { return Value::missing(); }
Value Native::call(Render&, Arguments) {
  fail(fmt::format("'{}' object is not callable", type_name()));
}

UndefinedInfo::UndefinedInfo(Meter* meter, Why w, std::string l, Value n)
    : Object(meter, sizeof(UndefinedInfo) + l.size(), 0),
      why(w),
      label(std::move(l)),
      name(std::move(n)) {}

std::string UndefinedInfo::message() const {
  switch (why) {
    case Why::kHint:
      return label;
    case Why::kName:
      return fmt::format("'{}' is undefined", name.text());
    case Why::kAttribute:
      break;
  }
  if (name.is_string()) return fmt::format("'{}' has no attribute '{}'", label, name.text());
  if (name.is_integral())
    return fmt::format("{} has no element {}", label, int_text(name.as_int()));
  return fmt::format("{} has no such element", label);
}

}  // namespace deltad::jinja
