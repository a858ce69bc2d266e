// What the admin API says of variants and of the memory for them. Pure.
#pragma once

#include "router/catalog.h"
#include "router/delta_cache.h"
#include "server/openai/errors.h"

namespace deltad {

Json variant_json(const VariantInfo& info);
Json limit_json(const VariantLimit& limit);  // null: none
Json cache_json(const CacheTierInfo& device, const CacheTierInfo& host);

}  // namespace deltad
