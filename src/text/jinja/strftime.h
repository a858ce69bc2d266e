// Python's strftime for strftime_now: C's formats in English, and the flags of glibc (%-d, %_H,
// %^a). Time is UTC without a zone's name, as datetime.now() on a machine in UTC.
#pragma once

#include <string>
#include <string_view>

#include "text/jinja/render.h"

namespace deltad::jinja {

std::string format_time(Render& render, std::string_view format, int64_t unix_seconds);

}  // namespace deltad::jinja
