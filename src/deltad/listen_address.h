// Addresses to listen on, as they stand in the config. Pure.
#pragma once

#include <string>

#include "base/status.h"

namespace deltad {

// ADDRESS:PORT or [IPv6]:PORT, else kInvalidArgument.
Status check_listen(const std::string& text);
// Whether two listeners would be in each other's way: the same port, of the same address or of all.
// Port 0 is never the same.
bool listen_alike(const std::string& one, const std::string& other);
// Whether only this machine can reach it; of a name other than localhost nothing is known.
bool is_loopback(const std::string& listen);

}  // namespace deltad
