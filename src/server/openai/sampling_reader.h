// Reads what chat and text completions have in common: types and ranges of each parameter. Any
// thread.
#pragma once

#include "server/generation/sampling_fields.h"
#include "server/openai/field_reader.h"

namespace deltad {

// The members of SamplingFields, and those that may be ignored without harm: user,
// safety_identifier and prompt_cache_key only label the request; metadata only labels what `store`
// would keep.
const FieldTable<SamplingFields>& sampling_field_table();

}  // namespace deltad
