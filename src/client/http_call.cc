#include "client/http_call.h"

#include <fmt/format.h>

#include <cerrno>
#include <string_view>

#include "client/http_response.h"

namespace deltad::client {
namespace {

std::string request_text(const ServerUrl& url, const HttpCall& call) {
  std::string text = fmt::format("{} {}{} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n",
                                 call.method, url.prefix, call.path, url.host_header());
  if (!call.api_key.empty()) text += fmt::format("Authorization: Bearer {}\r\n", call.api_key);
  if (!call.body.empty())
    text +=
        fmt::format("Content-Type: application/json\r\nContent-Length: {}\r\n", call.body.size());
  return text + "\r\n" + call.body;
}

}  // namespace

Result<HttpAnswer> call(const ServerUrl& url, const SocketAddress& address, const HttpCall& call,
                        double timeout_s) {
  ASSIGN_OR_RETURN(const Socket socket, connect_to(url, address, timeout_s));
  const std::string text = request_text(url, call);
  for (std::string_view rest = text; !rest.empty();) {
    const ssize_t n = ::send(socket.fd(), rest.data(), rest.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return socket_error(url, "cannot send");
    rest.remove_prefix(static_cast<size_t>(n));
  }
  HttpResponse response;
  HttpAnswer answer;
  char buffer[16384];
  while (!response.complete()) {
    const ssize_t n = ::recv(socket.fd(), buffer, sizeof(buffer), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return socket_error(url, "no answer");
    const Status status =
        n == 0 ? response.closed() : response.push({buffer, static_cast<size_t>(n)}, &answer.body);
    RETURN_IF_ERROR(status.in(url.host_header()));
  }
  answer.status = response.status();
  return answer;
}

}  // namespace deltad::client
