#include "client/http_call.h"

#include <fmt/core.h>

#include <optional>
#include <utility>

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
  ASSIGN_OR_RETURN(const Socket socket,
                   connect_to(url, address, Clock::real().now() + from_seconds(timeout_s)));
  std::optional<TlsSession> tls;
  if (url.tls) {
    ASSIGN_OR_RETURN(TlsSession session, TlsSession::open(socket, url, call.tls));
    tls = std::move(session);
  }
  const std::string text = request_text(url, call);
  RETURN_IF_ERROR(tls ? tls->send(text) : send_all(socket, url, text));
  HttpResponse response;
  HttpAnswer answer;
  char buffer[16384];
  while (!response.complete()) {
    ASSIGN_OR_RETURN(const size_t n,
                     tls ? tls->receive(buffer, sizeof(buffer))
                         : receive(socket, url, "no answer", buffer, sizeof(buffer)));
    const Status status = n == 0 ? response.closed() : response.push({buffer, n}, &answer.body);
    RETURN_IF_ERROR(status.in(url.host_header()));
  }
  answer.status = response.status();
  return answer;
}

}  // namespace deltad::client
