// The version of both programs.
#pragma once

namespace deltad {

inline constexpr const char* kVersion = "0.1.0";

}  // namespace deltad
