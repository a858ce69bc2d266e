// GET /v1/models and /v1/models/{id}: the base and its variants. Pure.
#pragma once

#include <string>

#include "server/openai/errors.h"
#include "server/serving.h"

namespace deltad {

Json list_models(const Serving& serving);
ApiError get_model(const Serving& serving, const std::string& id, Json* out);

}  // namespace deltad
