// Everything that a server can tell of itself at this moment, for who looks for the reason of
// something: the admin API's /debug/state, and what the engine's watchdog writes to the log. From
// snapshots, so nothing waits for it.
#pragma once

#include "server/observe/observer.h"
#include "server/openai/errors.h"
#include "server/serving.h"

namespace deltad {

Json debug_json(const Serving& serving, Observer& observer);

}  // namespace deltad
