// str.format() and str.format_map(): "{} and {name[0]!r:>8}".format(…), behind the sandbox.
#pragma once

#include "text/jinja/render.h"

namespace deltad::jinja {

Value str_format(Render& render, const Value& self, Arguments& arguments);
Value str_format_map(Render& render, const Value& self, Arguments& arguments);

}  // namespace deltad::jinja
