// Parameters that other servers know and this one does not do: a value that asks for nothing (null,
// an empty list, the default) passes, any other is a 400 that names the parameter. Never ignored.
// Any thread.
#pragma once

#include <string>

#include "server/openai/field_reader.h"

namespace deltad {

enum class Endpoint { kChat, kCompletions };

// *found: the parameter is one of these.
ApiError check_unsupported_field(Endpoint endpoint, const std::string& name, const Json& value,
                                 FieldFound* found);

}  // namespace deltad
