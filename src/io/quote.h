// For messages: a name out of a file, in quotes, printable and not longer than a line, whatever the
// file holds.
#pragma once

#include <string>
#include <string_view>

namespace deltad {

std::string quoted_name(std::string_view name);

}  // namespace deltad
