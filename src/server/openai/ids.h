// Random ids and seeds. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "server/exchange.h"

namespace deltad {

uint64_t random_seed();
// prefix and 32 hex digits.
std::string random_id(std::string_view prefix);
// An id that a client gave: 1 to 128 visible ASCII characters without quotes and backslashes, so
// that it can stand in a header and in a log line as it is.
bool valid_request_id(std::string_view id);
// The X-Request-Id that came, if it is valid, else a new one.
std::string request_id_of(const HttpRequest& request);

}  // namespace deltad
