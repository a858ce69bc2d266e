// What a variant or an adapter may be called. Pure, any thread.
#pragma once

#include <cstddef>
#include <string>

#include "base/status.h"

namespace deltad {

constexpr size_t kLongestVariantName = 256;  // bytes

// kInvalidArgument if the name is empty or too long, or holds spaces, control characters, commas
// (which separate names in lists) or bytes that are no UTF-8; dots, slashes and colons are fine.
Status check_variant_name(const std::string& name);

}  // namespace deltad
