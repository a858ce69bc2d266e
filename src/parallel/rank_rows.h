// RankRows: cuts the blocks of rows that a loader hands over down to what one rank holds, and hands
// these on in blocks that again begin at multiples of 16 of the rank's own rows. Owned by the
// rank's part of the base or of a variant; any thread.
#pragma once

#include <cstdint>
#include <functional>

#include "base/seams.h"
#include "base/status.h"
#include "parallel/shard_map.h"

namespace deltad {

class RankRows {
 public:
  // rows [count, columns of the shard], in the rank's own counting.
  using Sink = std::function<Status(int64_t first, int64_t count, const uint8_t* rows)>;

  // Rows [first, first + count) of a tensor with `columns` columns of `bits` bits each (1: signs as
  // the file has them, 16: bf16), each row in whole bytes. Every row comes once; `stream` tells
  // tensors apart.
  Status put(int32_t stream, const TensorShard& shard, int64_t columns, int bits, int64_t first,
             int64_t count, const uint8_t* rows, const Sink& sink);

 private:
  Seams seams_;  // tiles of which a block brings only a part
};

}  // namespace deltad
