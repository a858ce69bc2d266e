// Names out of hostile files may hold control characters, be megabytes long or be no UTF-8.
#include "io/quote.h"

#include <fmt/core.h>

namespace deltad {

std::string quoted_name(std::string_view name) {
  constexpr size_t kLongest = 120;
  std::string out = "'";
  for (char c : name.substr(0, kLongest)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f)
      out += c;
    else
      out += fmt::format("\\x{:02x}", byte);
  }
  return out + (name.size() > kLongest ? "...'" : "'");
}

}  // namespace deltad
