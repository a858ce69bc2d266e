// The built-in filters of jinja2. find_filter knows all; the groups are in filters_*.cc.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/jinja/ast.h"

namespace deltad::jinja {

FilterFunction find_filter(std::string_view name);  // null: there is none

using FilterTable = std::unordered_map<std::string_view, FilterFunction>;
void add_text_filters(FilterTable* table);
void add_number_filters(FilterTable* table);
void add_sequence_filters(FilterTable* table);
void add_order_filters(FilterTable* table);
void add_apply_filters(FilterTable* table);
void add_html_filters(FilterTable* table);

// What the argument `attribute` of a filter means: "a.0.b" is a path.
class AttributePath {
 public:
  AttributePath(Render& render, const Value& attribute);  // None: the item itself
  Value get(Render& render, const Value& item, const Value& otherwise = Value()) const;
  int depth() const { return depth_; }

 private:
  std::vector<Value> parts_;
  int depth_ = 0;
};

// Strings in lower case unless case matters; other values as they are.
Value folded(Render& render, const Value& v, bool case_sensitive);

}  // namespace deltad::jinja
