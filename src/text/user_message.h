// The tokens of a short chat through the model's template. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "text/text_assets.h"

namespace deltad {

// text has a chat template. Errors are the template's.
//
// One message of the user, ready to be answered.
Result<std::vector<int32_t>> user_message_ids(const TextAssets& text, const std::string& message);
// The same with its answer.
Result<std::vector<int32_t>> answered_message_ids(const TextAssets& text,
                                                  const std::string& message,
                                                  const std::string& answer);

}  // namespace deltad
