#include "delta/variant_name.h"

#include <fmt/core.h>

#include "io/quote.h"
#include "text/utf8.h"

namespace deltad {
Status check_variant_name(const std::string& name) {
  if (name.empty()) return invalid_argument("a variant's name is empty");
  if (name.size() > kLongestVariantName)
    return invalid_argument(fmt::format("variant name of {} bytes: at most {} are allowed",
                                        name.size(), kLongestVariantName));
  for (unsigned char c : name)
    if (c <= 0x20 || c == 0x7f)
      return invalid_argument(
          "a variant's name holds a space or control character: use letters, digits, . - _ / :");
  if (name.find(',') != std::string::npos)
    return invalid_argument(fmt::format(
        "variant name {} holds a comma, which separates names in lists", quoted_name(name)));
  if (!is_utf8(name))
    return invalid_argument(
        fmt::format("variant name {} is not UTF-8: no client could ask for it", quoted_name(name)));
  return {};
}

}  // namespace deltad
