#include "delta/read_plan.h"

#include <algorithm>

#include "base/check.h"
#include "delta/digest.h"

namespace deltad {

// Every byte of the data belongs to one tensor (the header was checked), so that each piece begins
// in the file where the one before it ends.
ReadPlan plan_reading(const SafetensorsFile& file, int64_t piece_bytes) {
  CHECK(kStretchBytes % piece_bytes == 0, "a stretch is a number of pieces");
  static_assert(kDigestPartBytes % kStretchBytes == 0);
  ReadPlan plan;
  for (const auto& [name, entry] : file.tensors()) plan.tensors.push_back({&name, &entry});
  std::stable_sort(plan.tensors.begin(), plan.tensors.end(),
                   [](const auto& a, const auto& b) { return a.entry->offset < b.entry->offset; });
  for (size_t t = 0; t < plan.tensors.size(); ++t) {
    const SafetensorsEntry& entry = *plan.tensors[t].entry;
    for (int64_t begin = 0; begin < entry.bytes; begin += piece_bytes) {
      const int64_t bytes = std::min(piece_bytes, entry.bytes - begin);
      const bool new_chunk = plan.chunks.empty() || (begin % kDigestPartBytes == 0 &&
                                                     plan.chunks.back().bytes >= kStretchBytes);
      if (new_chunk || plan.stretches.back().bytes + bytes > kStretchBytes) {
        const auto piece = static_cast<int64_t>(plan.pieces.size());
        plan.stretches.push_back({entry.offset + begin, 0, piece, piece});
      }
      const auto stretches = static_cast<int64_t>(plan.stretches.size());
      if (new_chunk) plan.chunks.push_back({0, stretches - 1, stretches});
      plan.pieces.push_back({static_cast<int32_t>(t), begin, bytes});
      plan.stretches.back().bytes += bytes;
      plan.stretches.back().end_piece = static_cast<int64_t>(plan.pieces.size());
      plan.chunks.back().bytes += bytes;
      plan.chunks.back().end_stretch = stretches;
      plan.bytes += bytes;
    }
  }
  return plan;
}

}  // namespace deltad
