// Attributes and items of values, with the rules of jinja's sandbox: what begins with an underscore
// or would change a list or a dict is undefined, and using it further is an error.
#pragma once

#include "text/jinja/render.h"

namespace deltad::jinja {

// object.name: an attribute, else an item, else undefined.
Value get_attribute(Render& render, const Value& object, const Value& name);
// object[key]: an item, else an attribute, else undefined.
Value get_item(Render& render, const Value& object, const Value& key);
// The attr filter: an attribute, else undefined.
Value attribute_only(Render& render, const Value& object, const Value& name);

// A method of a built-in type.
using Method = Value (*)(Render&, const Value& self, Arguments&);

}  // namespace deltad::jinja
