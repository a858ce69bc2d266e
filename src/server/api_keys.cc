#include "server/api_keys.h"

#include <string_view>

namespace deltad {
namespace {

// Does not tell by its time how much of the key was right.
bool same_key(std::string_view a, std::string_view b) {
  unsigned difference = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size() && !b.empty(); ++i) {
    difference |= static_cast<unsigned char>(a[i] ^ b[i % b.size()]);
  }
  return difference == 0;
}

}  // namespace

bool has_right_key(const HttpRequest& request, const std::vector<std::string>& keys) {
  if (keys.empty()) return true;
  static constexpr std::string_view kBearer = "Bearer ";
  const std::string* given = request.header("authorization");
  if (given == nullptr || given->compare(0, kBearer.size(), kBearer) != 0) return false;
  const std::string_view key = std::string_view(*given).substr(kBearer.size());
  bool right = false;
  for (const std::string& known : keys) right |= same_key(key, known);
  return right;
}

}  // namespace deltad
