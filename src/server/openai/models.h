// GET /v1/models and /v1/models/{id}: the base and its variants. Pure.
#pragma once

#include <string>

#include "server/access/caller.h"
#include "server/openai/errors.h"
#include "server/serving.h"

namespace deltad {

// Of those that the caller may use; null: all.
Json list_models(const Serving& serving, const Caller* caller);
ApiError get_model(const Serving& serving, const Caller& caller, const std::string& id, Json* out);

}  // namespace deltad
