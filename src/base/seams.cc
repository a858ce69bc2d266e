#include "base/seams.h"

#include <algorithm>

#include "base/check.h"

namespace deltad {

std::vector<uint8_t> Seams::add(int32_t tensor, int64_t unit, int64_t unit_bytes, int64_t offset,
                                const uint8_t* data, int64_t bytes) {
  CHECK(offset >= 0 && bytes >= 0 && offset <= unit_bytes && bytes <= unit_bytes - offset,
        "bytes outside their unit");
  MutexLock lock(mutex_);
  const auto at = open_.try_emplace({tensor, unit}).first;
  Open& open = at->second;
  open.content.resize(static_cast<size_t>(unit_bytes));
  std::copy(data, data + bytes, open.content.begin() + offset);
  open.have += bytes;
  if (open.have < unit_bytes) return {};
  std::vector<uint8_t> whole = std::move(open.content);
  open_.erase(at);
  return whole;
}

}  // namespace deltad
