// The keys of which a client must send one. Any thread.
#pragma once

#include <string>
#include <vector>

#include "server/exchange.h"

namespace deltad {

// Whether the request carries one of the keys ("Authorization: Bearer KEY"). None: all may come.
bool has_right_key(const HttpRequest& request, const std::vector<std::string>& keys);

}  // namespace deltad
