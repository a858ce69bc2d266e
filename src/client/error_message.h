// What a server says is wrong, out of the body of its answer. Any thread.
#pragma once

#include <simdjson.h>

#include <string>
#include <string_view>

namespace deltad::client {

// The message of an OpenAI-style error body ({"error": {"message": …}}), else the text's beginning.
std::string error_message(simdjson::dom::parser& parser, std::string_view body);

}  // namespace deltad::client
