// What the admin API says of the adapter pool and of its operations. Pure.
#pragma once

#include "server/openai/errors.h"
#include "server/pool/pool_service.h"

namespace deltad {

// operations: newest first; shown without their reports.
Json pool_json(const PoolView& view, const std::vector<PoolOperation>& operations);
Json pool_adapter_json(const PoolView& view, const PoolAdapter& adapter);
Json pool_operation_json(const PoolOperation& operation, bool with_report);

}  // namespace deltad
