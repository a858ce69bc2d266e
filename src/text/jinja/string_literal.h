// String literals of templates: Python's escapes.
#pragma once

#include <string>
#include <string_view>

namespace deltad::jinja {

// The text between the quotes with its escapes replaced; fails with this line on a bad one.
std::string unescape(std::string_view literal, int line);

}  // namespace deltad::jinja
