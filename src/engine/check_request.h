// Whether the engine can take a request at all. Called on the submitting thread.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "engine/request.h"

namespace deltad {

// What holds whatever the variant is. kInvalidArgument says what was expected; of a prompt that can
// never fit, both token counts.
Status check_request(const Request& request, int32_t max_context);

// The token ids, once the variant is there. base_vocab: rows of the base's head; a variant may have
// its own.
Status check_tokens(const Request& request, int64_t base_vocab);

}  // namespace deltad
