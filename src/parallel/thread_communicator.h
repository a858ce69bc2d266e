// Communicators of ranks that are threads of one process and share its memory.
#pragma once

#include <memory>
#include <vector>

#include "backend/communicator.h"
#include "base/clock.h"

namespace deltad {

// One a rank. A rank that has not reached a call for `bound` since another one did counts as
// failed: status() then names it. So do ranks whose calls do not fit together.
std::vector<std::unique_ptr<Communicator>> make_thread_communicators(int ranks, Duration bound);

}  // namespace deltad
