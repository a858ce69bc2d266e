// Who reads what of a file that several ranks share: each a piece of equal size, in the file's
// order, so that all of it is read once. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace deltad {

// Cuts pieces of these sizes into `shares` runs of equal size as far as whole pieces allow: share k
// has the pieces [bounds[k], bounds[k + 1]).
std::vector<int64_t> read_shares(std::span<const int64_t> bytes, int shares);

}  // namespace deltad
