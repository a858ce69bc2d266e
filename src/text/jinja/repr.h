// Values as text, as Python's str() and repr() write them, and the names of their types.
#pragma once

#include <string>
#include <string_view>

#include "text/jinja/render.h"

namespace deltad::jinja {

std::string type_name(const Value& v);  // str, NoneType, dict_keys, …
// How jinja names an object in messages: "str object", "None".
std::string object_label(const Value& v);

bool truthy(Render& render, const Value& v);

// str(v)
std::string str(Render& render, const Value& v);
// str(v) as a value: a string itself, with its markup.
Value soft_str(Render& render, const Value& v);
void append_repr(Render& render, std::string* out, const Value& v);
std::string repr(Render& render, const Value& v);
// repr() of a string; ascii_only escapes all others as ascii() does.
std::string quoted_repr(std::string_view s, bool ascii_only = false);
// "<kind at 0x…>" for objects that Python prints with their address.
std::string address_text(std::string_view kind, const Object* object);

// &, <, >, ' and " as HTML entities.
std::string escape_html(std::string_view s);
// markupsafe.escape(v): text of markup is kept.
std::string escaped_str(Render& render, const Value& v);

}  // namespace deltad::jinja
