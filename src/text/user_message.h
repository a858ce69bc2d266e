// The tokens of a chat that begins: one message of the user, ready to be answered. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "text/text_assets.h"

namespace deltad {

// text has a chat template. Errors are the template's.
Result<std::vector<int32_t>> user_message_ids(const TextAssets& text, const std::string& message);

}  // namespace deltad
