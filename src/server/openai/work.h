// Endpoints whose answer takes work in proportion to the body: chat, completions, tokenize and
// detokenize. Large bodies are read beside the I/O threads, which others wait for.
#pragma once

#include <memory>

#include "server/access/caller.h"
#include "server/openai/reply.h"
#include "server/serving.h"

namespace deltad {

// On the line of work of the reply's exchange.
void answer_work(const Serving& serving, std::shared_ptr<const Caller> caller, Route route,
                 HttpRequest request, std::unique_ptr<Reply> reply);

}  // namespace deltad
