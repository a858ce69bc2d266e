// Reads the body of POST /v1/completions. Any thread.
#pragma once

#include <string_view>

#include "server/generation/requests.h"

namespace deltad {

ApiError parse_completion_request(std::string_view body, CompletionRequest* out);

}  // namespace deltad
