#include "server/request_target.h"

#include "base/ascii.h"

namespace deltad {
std::string_view path_of(std::string_view target) {
  return target.substr(0, target.find_first_of("?#"));
}

std::string percent_decoded(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && hex_digit(text[i + 1]) >= 0 &&
        hex_digit(text[i + 2]) >= 0) {
      out += static_cast<char>(hex_digit(text[i + 1]) * 16 + hex_digit(text[i + 2]));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

bool method_allowed(std::string_view method, std::string_view allow) {
  while (!allow.empty()) {
    const size_t end = allow.find(", ");
    if (allow.substr(0, end) == method) return true;
    if (end == std::string_view::npos) break;
    allow.remove_prefix(end + 2);
  }
  return false;
}

}  // namespace deltad
