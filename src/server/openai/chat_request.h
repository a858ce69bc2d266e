// Reads the body of POST /v1/chat/completions. Any thread.
#pragma once

#include <string_view>

#include "server/generation/requests.h"

namespace deltad {

ApiError parse_chat_request(std::string_view body, ChatRequest* out);

}  // namespace deltad
