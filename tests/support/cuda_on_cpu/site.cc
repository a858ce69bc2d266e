#include "tests/support/cuda_on_cpu/site.h"

#include <array>
#include <string_view>

namespace deltad::emulator {

std::string text_of(Where where) {
  const std::string_view file = where.file;
  return std::string(file.substr(file.rfind('/') + 1)) + ":" + std::to_string(where.line);
}

std::string Site::text() const {
  constexpr std::array<const char*, 7> names = {"barrier", "warp barrier", "wait",       "guard",
                                                "release", "acquire",      "proxy fence"};
  return std::string(names[static_cast<size_t>(kind)]) + " at " + text_of(where);
}

SiteTable& SiteTable::instance() {
  static auto& table = *new SiteTable;  // never destroyed: see GlobalMemory
  return table;
}

SiteId SiteTable::id_of(SiteKind kind, Where where) {
  const uint64_t key = (reinterpret_cast<uint64_t>(where.file) << 19) ^
                       (static_cast<uint64_t>(where.line) << 3) ^ static_cast<uint64_t>(kind);
  const auto [found, added] = ids_.try_emplace(key, static_cast<SiteId>(sites_.size()));
  if (added) sites_.push_back({kind, where});
  return found->second;
}

}  // namespace deltad::emulator
