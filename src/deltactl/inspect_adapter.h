// deltactl inspect of a LoRA adapter. Main thread.
#pragma once

#include <string>

#include "base/status.h"

namespace deltad {

// Prints which modules it changes, by which ranks and scales, and whether it would be served and if
// not why. base: of whose modules it is to be; "": what can be told without one.
Status inspect_adapter(const std::string& path, const std::string& base, bool json);

}  // namespace deltad
