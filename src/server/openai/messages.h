// The messages of a chat request, checked and brought into the form that chat templates take. Any
// thread.
#pragma once

#include <string>

#include "server/openai/errors.h"

namespace deltad {

// value: what the client sent as `param`. *out: an array of messages with string content (several
// text parts are joined by line breaks), null beside tool calls, and tool calls whose arguments are
// objects.
ApiError read_messages(const Json& value, const std::string& param, Json* out);

}  // namespace deltad
