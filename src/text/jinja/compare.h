// Equality, order, membership and hashing of values, as Python's; and the making of dicts.
#pragma once

#include "text/jinja/render.h"

namespace deltad::jinja {

bool equal(Render& render, const Value& a, const Value& b);

enum class Order { kLess, kLessEqual, kGreater, kGreaterEqual };
bool ordered(Render& render, Order order, const Value& a, const Value& b);

// a in container
bool contains(Render& render, const Value& container, const Value& a);

bool hashable(Render& render, const Value& v);
size_t hash(Render& render, const Value& v);  // fails on what Python cannot hash

// The value under key, or null. Fails if the key cannot be hashed.
const Value* find(Render& render, const Dict& dict, const Value& key);
const Value* find(const Dict& dict, std::string_view key);

// Keys hash alike whether made here or from JSON.
size_t hash_text(std::string_view s);
constexpr size_t kIndexedDictSize = 8;  // dicts above this are indexed

class DictBuilder {
 public:
  explicit DictBuilder(Render& render) : render_(render) {}
  // A key that is there already keeps its place and gets the new value.
  void set(Value key, Value value);
  void set_all(const Dict& other);
  Value take();

 private:
  Render& render_;
  Entries entries_;
  std::unordered_multimap<size_t, size_t> index_;
};

}  // namespace deltad::jinja
