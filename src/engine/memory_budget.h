// How much memory this process may still use: what automatic sizes are taken from.
#pragma once

#include <cstdint>
#include <string>

namespace deltad {

// Bytes; the smaller of MemAvailable and what the control group still allows. 0 if neither can be
// read. root: "" except in tests, which lay out files of their own.
int64_t available_memory(const std::string& root = "");

}  // namespace deltad
