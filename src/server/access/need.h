// Need: what a route or method asks of its caller. Every one states it; there is no default.
#pragma once

namespace deltad {

enum class Need {
  kNothing,    // anybody who reaches the listener
  kInference,  // any key
  kAdmin       // a key with `admin: true`
};

}  // namespace deltad
