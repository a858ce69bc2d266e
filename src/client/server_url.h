// ServerUrl: where a server is. Plain data.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace deltad::client {

struct ServerUrl {
  std::string host;  // without the brackets of an IPv6 address
  std::string port;
  std::string prefix;  // of every path; "" or "/…" without a slash at its end
  bool tls = false;    // https

  std::string host_header() const;  // "host:port"
};
// "http[s]://HOST[:PORT][/PREFIX]"; a "/v1" at the end is left out, as the routes begin with it.
Result<ServerUrl> parse_url(std::string_view text);

}  // namespace deltad::client
