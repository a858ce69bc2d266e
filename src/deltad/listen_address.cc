#include "deltad/listen_address.h"

#include <arpa/inet.h>
#include <fmt/core.h>

#include <cstring>

namespace deltad {

Status check_listen(const std::string& text) {
  const size_t colon = text.rfind(':');
  const std::string address = text.substr(0, colon == std::string::npos ? 0 : colon);
  const std::string port = colon == std::string::npos ? "" : text.substr(colon + 1);
  const bool digits = !port.empty() && port.size() <= 5 &&
                      port.find_first_not_of("0123456789") == std::string::npos;
  if (address.empty() || !digits || std::stoi(port) > 65535)
    return invalid_argument(
        fmt::format("'{}' is not ADDRESS:PORT (such as 127.0.0.1:8080 or [::1]:8080)", text));
  return Status();
}

bool listen_alike(const std::string& one, const std::string& other) {
  const auto host = [](const std::string& listen) { return listen.substr(0, listen.rfind(':')); };
  const auto port = [](const std::string& listen) {
    return std::stoi(listen.substr(listen.rfind(':') + 1));
  };
  const auto all = [](const std::string& host) { return host == "0.0.0.0" || host == "[::]"; };
  if (port(one) == 0 || port(one) != port(other)) return false;
  const std::string a = host(one), b = host(other);
  return a == b || all(a) || all(b) || (a == "localhost" && is_loopback(other)) ||
         (b == "localhost" && is_loopback(one));
}

bool is_loopback(const std::string& listen) {
  const std::string host = listen.substr(0, listen.rfind(':'));
  in_addr v4{};
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  return host == "localhost" || host == "[::1]";
}

}  // namespace deltad
