#include "parallel/rank_rows.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/check.h"

namespace deltad {
namespace {

constexpr int64_t kTile = 16;  // rows at which blocks begin

int64_t row_bytes(int64_t columns, int bits) { return (columns * bits + 7) / 8; }

// Columns [range.begin, range.end) of one row; what is left of the last byte becomes 0.
void copy_columns(const uint8_t* row, int64_t row_size, const Range& range, int bits,
                  uint8_t* out) {
  const int64_t from = range.begin * bits, size = range.size() * bits;
  const uint8_t* at = row + from / 8;
  const int shift = static_cast<int>(from % 8);
  const int64_t bytes = (size + 7) / 8;
  if (shift == 0) {
    std::memcpy(out, at, static_cast<size_t>(bytes));
  } else {  // heads that end within a byte
    const int64_t behind = row + row_size - at;
    for (int64_t i = 0; i < bytes; ++i) {
      const int next = i + 1 < behind ? at[i + 1] : 0;
      out[i] = static_cast<uint8_t>(at[i] >> shift | next << (8 - shift));
    }
  }
  if (size % 8 != 0) out[bytes - 1] &= static_cast<uint8_t>((1 << (size % 8)) - 1);
}

}  // namespace

Status RankRows::put(int32_t stream, const TensorShard& shard, int64_t columns, int bits,
                     int64_t first, int64_t count, const uint8_t* rows, const Sink& sink) {
  const int64_t begin = std::max(first, shard.rows.begin);
  const int64_t end = std::min(first + count, shard.rows.end);
  if (begin >= end) return {};
  const int64_t whole = row_bytes(columns, bits), own = row_bytes(shard.columns.size(), bits);
  const uint8_t* data = rows + (begin - first) * whole;
  std::vector<uint8_t> cut;
  if (shard.columns != Range{0, columns}) {
    cut.resize(static_cast<size_t>((end - begin) * own));
    for (int64_t r = 0; r < end - begin; ++r)
      copy_columns(data + r * whole, whole, shard.columns, bits, cut.data() + r * own);
    data = cut.data();
  }

  // In the rank's own rows: what begins within a tile, whole tiles, what ends within one.
  const int64_t all = shard.rows.size(), from = begin - shard.rows.begin,
                to = end - shard.rows.begin;
  const int64_t head = std::min(to, (from + kTile - 1) / kTile * kTile);
  const int64_t tail = to == all ? to : std::max(head, to / kTile * kTile);
  const auto put_part = [&](int64_t a, int64_t b) -> Status {
    if (a >= b) return {};
    const int64_t tile = a / kTile, at = tile * kTile;
    const int64_t in_tile = std::min(kTile, all - at);
    const std::vector<uint8_t> complete = seams_.add(stream, tile, in_tile * own, (a - at) * own,
                                                     data + (a - from) * own, (b - a) * own);
    return complete.empty() ? Status() : sink(at, in_tile, complete.data());
  };
  RETURN_IF_ERROR(put_part(from, head));
  if (tail > head) RETURN_IF_ERROR(sink(head, tail - head, data + (head - from) * own));
  return put_part(tail, to);
}

}  // namespace deltad
