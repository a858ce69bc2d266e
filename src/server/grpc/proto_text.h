// Text for Protobuf's string fields, which hold UTF-8 and nothing else. Pure.
#pragma once

#include <string>

namespace deltad {

// What is not UTF-8 becomes U+FFFD, as in the HTTP API's JSON.
std::string valid_utf8(std::string text);

}  // namespace deltad
