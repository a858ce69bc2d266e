// Python's printf-style formatting: "%s has %d" % (name, n).
#pragma once

#include "text/jinja/render.h"

namespace deltad::jinja {

Value percent_format(Render& render, const Value& format, const Value& arguments);

}  // namespace deltad::jinja
