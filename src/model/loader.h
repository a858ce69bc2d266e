// Loads a checkpoint's base weights into a backend: several threads read with pread through at most
// 64 MiB of staging, convert to bf16 and hand rows over. Peak memory is the model plus the staging.
#pragma once

#include <cstdint>
#include <functional>

#include "backend/backend.h"
#include "model/checkpoint.h"
#include "model/weight_table.h"

namespace deltad {

using Progress =
    std::function<void(int64_t done_bytes, int64_t total_bytes)>;  // may be null; any thread

// That every weight of the table is in the checkpoint with the shape the table gives it;
// kInvalidArgument names the first tensor that is missing or misshapen. Reads no values.
Status check_tensors(const Checkpoint& checkpoint, const WeightTable& table);

// Declares the table's weights and fills them. If the store has several ranks, each reads a part of
// the files, of one size and in one piece. kInvalidArgument names a tensor that is missing,
// misshapen, or has a value that is not finite in bf16.
Status load_base(const Checkpoint& checkpoint, const WeightTable& table, WeightStore& store,
                 int threads, const Progress& progress);

}  // namespace deltad
