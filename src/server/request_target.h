// What a request's target and method say, whoever answers it. Pure.
#pragma once

#include <string>
#include <string_view>

namespace deltad {

std::string_view path_of(std::string_view target);   // without the query
std::string percent_decoded(std::string_view text);  // what is not %XX stays as it is
// allow: methods, as in the Allow header.
bool method_allowed(std::string_view method, std::string_view allow);

}  // namespace deltad
