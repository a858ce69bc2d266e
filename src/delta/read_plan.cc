#include "delta/read_plan.h"

#include <algorithm>

#include "delta/digest.h"

namespace deltad {

ReadPlan plan_reading(const SafetensorsFile& file) {
  ReadPlan plan;
  for (const auto& [name, entry] : file.tensors()) plan.tensors.push_back({&name, &entry});
  std::stable_sort(plan.tensors.begin(), plan.tensors.end(),
                   [](const auto& a, const auto& b) { return a.entry->offset < b.entry->offset; });
  for (size_t t = 0; t < plan.tensors.size(); ++t) {
    const SafetensorsEntry& entry = *plan.tensors[t].entry;
    for (int64_t begin = 0; begin < entry.bytes; begin += kDigestPartBytes) {
      const int64_t bytes = std::min(kDigestPartBytes, entry.bytes - begin);
      // Every byte of the data belongs to one tensor (the header was checked), so that the next
      // part begins where the last one ends.
      if (plan.chunks.empty() || plan.chunks.back().bytes >= kDigestPartBytes) {
        const auto next = static_cast<int64_t>(plan.parts.size());
        plan.chunks.push_back({entry.offset + begin, 0, next, next});
      }
      ReadChunk& chunk = plan.chunks.back();
      plan.parts.push_back({static_cast<int32_t>(t), begin, bytes});
      chunk.bytes += bytes;
      chunk.end_part = static_cast<int64_t>(plan.parts.size());
      plan.bytes += bytes;
      plan.largest_chunk = std::max(plan.largest_chunk, chunk.bytes);
    }
  }
  return plan;
}

}  // namespace deltad
