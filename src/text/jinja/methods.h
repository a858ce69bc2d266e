// Methods and properties of strings, numbers, lists, tuples, dicts and ranges.
#pragma once

#include "text/jinja/attributes.h"

namespace deltad::jinja {

Method find_method(const Value& object, std::string_view name);  // null: none
// Whether this is a method that changes a list or dict, which the sandbox refuses.
bool changes_object(const Value& object, std::string_view name);
// An attribute that is not a method, or kMissing.
Value property(Render& render, const Value& object, std::string_view name);

Method find_string_method(std::string_view name);

}  // namespace deltad::jinja
