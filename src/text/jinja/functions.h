// The global functions of templates: range, dict, namespace, cycler, joiner, raise_exception,
// strftime_now.
#pragma once

#include <string>
#include <unordered_map>

#include "text/jinja/render.h"

namespace deltad::jinja {

void add_globals(Render& render, std::unordered_map<std::string, Value>* names);

bool is_namespace(const Value& v);
// namespace.name = value; fails for names that begin with an underscore.
void set_namespace_attribute(const Value& object, const std::string& name, const Value& v);

}  // namespace deltad::jinja
