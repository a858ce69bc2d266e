// Value: what a template computes with, modelled on Python's objects. Small kinds are held in
// place, others are shared by reference count. Strings, lists, tuples and dicts never change once
// made, so a container's depth is known when it is made and is bounded: nothing that walks a value
// can recurse without end. What does change (namespaces, the variables of functions) is registered
// with the render, which empties it at the end, because it can refer to itself.
// A value belongs to one render and its thread; constants of a template are immortal (never
// counted), so that any thread may read them.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/jinja/meter.h"

namespace deltad::jinja {

__extension__ using Int = __int128;  // wide enough for every integer that JSON can carry

enum class Kind : uint8_t {
  kMissing,  // a variable without a value; never seen by a template
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,
  kTuple,
  kDict,
  kRange,
  kView,      // keys(), values(), items() of a dict
  kIterator,  // something that can be walked once
  kObject,    // the rest: functions, macros, namespaces, loops
};

class Object {
 public:
  // meter: null for what is not counted (the template's constants, the caller's variables).
  Object(Meter* meter, size_t bytes, int depth);
  virtual ~Object();
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;

  void retain() {
    if (!immortal_) ++references_;
  }
  void release() {
    if (!immortal_ && --references_ == 0) delete this;
  }
  void make_immortal() { immortal_ = true; }
  virtual void clear() {}  // at the end of the render: let go of what it refers to
  int depth() const { return depth_; }

 private:
  Meter* meter_;
  size_t bytes_;
  int references_ = 0;
  int16_t depth_;  // of containers inside each other, itself included
  bool immortal_ = false;
};

// A counted reference to an object of a known class.
template <typename T>
class Ref {
 public:
  Ref() = default;
  explicit Ref(T* object) : object_(object) {
    if (object_ != nullptr) object_->retain();
  }
  Ref(const Ref& other) : Ref(other.object_) {}
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(Ref other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() {
    if (object_ != nullptr) object_->release();
  }
  T* get() const { return object_; }
  T* operator->() const { return object_; }
  T& operator*() const { return *object_; }

 private:
  T* object_ = nullptr;
};

struct String;
struct List;
struct Dict;
struct Range;
struct View;
class Iterator;
class Native;
struct UndefinedInfo;

class Value {
 public:
  Value() = default;  // None
  Value(const Value& other) : kind_(other.kind_), low_(other.low_), high_(other.high_) {
    if (counted()) object()->retain();
  }
  Value(Value&& other) noexcept : kind_(other.kind_), low_(other.low_), high_(other.high_) {
    other.kind_ = Kind::kNone;
  }
  Value& operator=(Value other) noexcept {
    std::swap(kind_, other.kind_);
    std::swap(low_, other.low_);
    std::swap(high_, other.high_);
    return *this;
  }
  ~Value() {
    if (counted()) object()->release();
  }

  static Value missing() { return Value(Kind::kMissing, 0, 0); }
  static Value boolean(bool b) { return Value(Kind::kBool, b ? 1 : 0, 0); }
  static Value integer(Int i) {
    return Value(Kind::kInt, static_cast<uint64_t>(i), static_cast<uint64_t>(i >> 64));
  }
  static Value real(double d) {
    uint64_t bits;
    std::memcpy(&bits, &d, sizeof bits);
    return Value(Kind::kFloat, bits, 0);
  }
  static Value of(Kind kind, Object* object) {
    Value v(kind, reinterpret_cast<uint64_t>(object), 0);
    object->retain();
    return v;
  }

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_missing() const { return kind_ == Kind::kMissing; }
  bool is_undefined() const { return kind_ == Kind::kUndefined; }
  bool is_none() const { return kind_ == Kind::kNone; }
  bool is_string() const { return kind_ == Kind::kString; }
  bool is_integral() const { return kind_ == Kind::kInt || kind_ == Kind::kBool; }  // Python's int
  bool is_number() const { return is_integral() || kind_ == Kind::kFloat; }
  bool is_sequence() const { return kind_ == Kind::kList || kind_ == Kind::kTuple; }

  bool as_bool() const { return low_ != 0; }
  Int as_int() const {  // of kInt and kBool
    return static_cast<Int>((static_cast<unsigned __int128>(high_) << 64) | low_);
  }
  double as_float() const;  // of any number
  Object* object() const { return reinterpret_cast<Object*>(low_); }

  const String& string() const;
  const std::string& text() const;  // of kString
  const List& list() const;         // of kList and kTuple
  const std::vector<Value>& items() const;
  const Dict& dict() const;
  const Range& range() const;
  const View& view() const;
  Iterator& iterator() const;
  Native& native() const;
  const UndefinedInfo& undefined() const;

  // Depth of containers; 0 for what holds nothing.
  int depth() const { return counted() ? object()->depth() : 0; }
  // The same object, or equal in kind and content for what is held in place: Python's `is`.
  bool same(const Value& other) const {
    return kind_ == other.kind_ && low_ == other.low_ && high_ == other.high_;
  }

 private:
  Value(Kind kind, uint64_t low, uint64_t high) : kind_(kind), low_(low), high_(high) {}
  bool counted() const { return kind_ >= Kind::kString || kind_ == Kind::kUndefined; }

  Kind kind_ = Kind::kNone;
  uint64_t low_ = 0;
  uint64_t high_ = 0;
};

struct String final : Object {
  String(Meter* meter, std::string text, bool markup);
  const std::string text;
  const size_t length;  // in code points; equal to text.size() when all is ASCII
  const bool markup;    // safe HTML: joined with other text, that text is escaped
};

// A list or a tuple.
struct List final : Object {
  List(Meter* meter, std::vector<Value> items, bool group);
  const std::vector<Value> items;
  const bool group;  // a pair made by groupby, with the attributes grouper and list
};

using Entries = std::vector<std::pair<Value, Value>>;

struct Dict final : Object {
  Dict(Meter* meter, Entries entries, std::unordered_multimap<size_t, size_t> index);
  const Entries entries;
  // From a key's hash to its place; empty for small dicts, which are searched.
  const std::unordered_multimap<size_t, size_t> index;
};

struct Range final : Object {
  Range(Meter* meter, Int start, Int stop, Int step);
  Int at(Int i) const { return start + i * step; }
  const Int start, stop, step;
  const Int length;
};

struct View final : Object {
  enum class Part { kKeys, kValues, kItems };
  View(Meter* meter, Value dict, Part part);
  const Value dict;
  const Part part;
};

class Render;

// Walks once over something, computing as it goes.
class Iterator : public Object {
 public:
  // type: Python's name for it; name: of the function whose generator it is, or null.
  Iterator(Meter* meter, int depth, const char* type, const char* name)
      : Object(meter, 64, depth), type_(type), name_(name) {}
  virtual bool next(Render& render, Value* out) = 0;
  const char* type() const { return type_; }
  const char* name() const { return name_; }

 private:
  const char* type_;
  const char* name_;
};

// Arguments of a call.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

// Functions, macros, namespaces, loops and the like.
class Native : public Object {
 public:
  Native(Meter* meter, size_t bytes, int depth) : Object(meter, bytes, depth) {}
  virtual std::string type_name() const = 0;
  virtual std::string repr(Render& render) = 0;
  // kMissing where there is no such attribute.
  virtual Value attribute(Render& render, std::string_view name);
  virtual Value item(Render& render, const Value& key);  // kMissing: none
  virtual bool callable() const { return false; }
  virtual Value call(Render& render, Arguments arguments);
};

// Why a value is undefined, for the message when it is used.
struct UndefinedInfo final : Object {
  enum class Why { kName, kAttribute, kHint };
  UndefinedInfo(Meter* meter, Why why, std::string label, Value name);
  std::string message() const;
  const Why why;
  const std::string label;  // the object's type, or the whole message
  const Value name;
};

}  // namespace deltad::jinja
