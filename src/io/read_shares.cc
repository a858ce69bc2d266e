#include "io/read_shares.h"

namespace deltad {

// A piece belongs to the share in which its middle lies.
std::vector<int64_t> read_shares(std::span<const int64_t> bytes, int shares) {
  int64_t all = 0;
  for (const int64_t n : bytes) all += n;
  std::vector<int64_t> bounds = {0};
  int64_t before = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    while (static_cast<int>(bounds.size()) < shares &&
           (2 * before + bytes[i]) * shares >= 2 * all * static_cast<int64_t>(bounds.size()))
      bounds.push_back(static_cast<int64_t>(i));
    before += bytes[i];
  }
  bounds.resize(static_cast<size_t>(shares) + 1, static_cast<int64_t>(bytes.size()));
  return bounds;
}

}  // namespace deltad
