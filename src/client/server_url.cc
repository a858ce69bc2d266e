#include "client/server_url.h"

#include <fmt/core.h>

namespace deltad::client {

std::string ServerUrl::host_header() const {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port)
                                             : fmt::format("[{}]:{}", host, port);
}

Result<ServerUrl> parse_url(std::string_view text) {
  const auto wrong = [whole = text](std::string_view why) {
    return invalid_argument(
        fmt::format("\"{}\": {}; http[s]://HOST:PORT was expected", whole, why));
  };
  ServerUrl url;
  url.tls = text.substr(0, 8) == "https://";
  if (!url.tls && text.substr(0, 7) != "http://") return wrong("not an http URL");
  text.remove_prefix(url.tls ? 8 : 7);
  const size_t slash = text.find('/');
  std::string_view place = text.substr(0, slash);
  std::string_view path = slash == std::string_view::npos ? "" : text.substr(slash);
  if (place.substr(0, 1) == "[") {
    const size_t close = place.find(']');
    if (close == std::string_view::npos) return wrong("a bracket is not closed");
    url.host = place.substr(1, close - 1);
    place.remove_prefix(close + 1);
  } else {
    url.host = place.substr(0, place.find(':'));
    place.remove_prefix(url.host.size());
  }
  url.port = !place.empty() ? std::string(place.substr(1)) : url.tls ? "443" : "80";
  const bool digits = !url.port.empty() && url.port.size() <= 5 &&
                      url.port.find_first_not_of("0123456789") == std::string::npos;
  if (url.host.empty()) return wrong("it names no host");
  if ((!place.empty() && place.front() != ':') || !digits || std::stoi(url.port) > 65535) {
    return wrong("its port is no number up to 65535");
  }
  if (path.find_first_of("?# ") != std::string_view::npos) return wrong("only a path may follow");
  while (!path.empty() && path.back() == '/') path.remove_suffix(1);
  if (path.size() >= 3 && path.substr(path.size() - 3) == "/v1") path.remove_suffix(3);
  url.prefix = path;
  return url;
}

}  // namespace deltad::client
