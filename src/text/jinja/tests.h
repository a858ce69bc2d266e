// The built-in tests of jinja2, as in `x is defined`.
#pragma once

#include <string_view>

#include "text/jinja/ast.h"

namespace deltad::jinja {

TestFunction find_test(std::string_view name);  // null: there is none

}  // namespace deltad::jinja
