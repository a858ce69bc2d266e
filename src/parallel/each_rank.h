// Work that all ranks do at once, outside of steps. Any thread.
#pragma once

#include <functional>

#include "base/status.h"

namespace deltad {

// work(rank) for each of them, on a thread of its own but for rank 0, which has the caller's.
// Returns when all have ended: the first rank's failure, which names it.
Status each_rank(int ranks, const std::function<Status(int rank)>& work);

}  // namespace deltad
