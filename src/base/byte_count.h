// Sizes as people write them. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace deltad {

// "4096", "512KiB", "64MiB", "2GiB": 1 or more bytes; none if it is no such text.
std::optional<int64_t> byte_count(const std::string& text);

}  // namespace deltad
