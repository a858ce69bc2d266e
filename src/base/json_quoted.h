// A text as a JSON string, for the few places below the JSON library (log lines).
#pragma once

#include <string>
#include <string_view>

namespace deltad {

// With its quotes. What is not UTF-8 becomes U+FFFD.
std::string json_quoted(std::string_view text);

}  // namespace deltad
