// ServerUrl: where the server under load is.
#pragma once

#include <sys/socket.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace deltad::loadgen {

struct ServerUrl {
  std::string host;  // without the brackets of an IPv6 address
  std::string port;
  std::string prefix;  // of every path; "" or "/…" without a slash at its end

  std::string host_header() const;  // "host:port"
};
// "http://HOST[:PORT][/PREFIX]"; a "/v1" at the end is left out, as the routes begin with it.
Result<ServerUrl> parse_url(std::string_view text);

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;
};
// Looks the host up and tries its addresses in turn: the first at which somebody listens. Blocks,
// at most about `timeout_s` an address.
Result<SocketAddress> find_server(const ServerUrl& url, double timeout_s);

// The ids that GET /v1/models lists, in its order. Blocks, at most about `timeout_s`.
Result<std::vector<std::string>> list_models(const ServerUrl& url, const SocketAddress& address,
                                             const std::string& api_key, double timeout_s);

}  // namespace deltad::loadgen
