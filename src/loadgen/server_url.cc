#include "loadgen/server_url.h"

#include <fmt/format.h>
#include <netdb.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <system_error>

#include "loadgen/answer_reader.h"
#include "loadgen/http_response.h"
#include "text/json_reader.h"

namespace deltad::loadgen {
namespace {

Status failed(const ServerUrl& url, std::string_view what) {
  return unavailable(
      fmt::format("{}: {}: {}", url.host_header(), what, std::generic_category().message(errno)));
}

struct Socket {
  int fd = -1;
  ~Socket() {
    if (fd >= 0) ::close(fd);
  }
};

Status connect(const ServerUrl& url, const SocketAddress& address, double timeout_s,
               Socket* socket) {
  socket->fd = ::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (socket->fd < 0) return failed(url, "no socket");
  timeval limit{};
  limit.tv_sec = std::max<time_t>(1, static_cast<time_t>(timeout_s));
  ::setsockopt(socket->fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  ::setsockopt(socket->fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));  // connect's, too
  const auto* where = reinterpret_cast<const sockaddr*>(&address.storage);
  if (::connect(socket->fd, where, address.size) != 0) return failed(url, "cannot connect");
  return Status();
}

// Sends `request` and reads the answer until it is whole.
Status exchange(const ServerUrl& url, const SocketAddress& address, const std::string& request,
                double timeout_s, HttpResponse* response, std::string* body) {
  Socket socket;
  RETURN_IF_ERROR(connect(url, address, timeout_s, &socket));
  const int fd = socket.fd;
  if (::send(fd, request.data(), request.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(request.size())) {
    return failed(url, "cannot send");
  }
  char buffer[16384];
  while (!response->complete()) {
    const ssize_t n = ::recv(fd, buffer, sizeof(buffer), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return failed(url, "no answer");
    if (n == 0) return response->closed().in(url.host_header());
    RETURN_IF_ERROR(response->push({buffer, static_cast<size_t>(n)}, body).in(url.host_header()));
  }
  return Status();
}

}  // namespace

std::string ServerUrl::host_header() const {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port)
                                             : fmt::format("[{}]:{}", host, port);
}

Result<ServerUrl> parse_url(std::string_view text) {
  const auto wrong = [whole = text](std::string_view why) {
    return invalid_argument(fmt::format("\"{}\": {}; http://HOST:PORT was expected", whole, why));
  };
  constexpr std::string_view kScheme = "http://";
  if (text.substr(0, 8) == "https://") return wrong("https is not supported");
  if (text.substr(0, kScheme.size()) != kScheme) return wrong("not an http URL");
  text.remove_prefix(kScheme.size());
  const size_t slash = text.find('/');
  std::string_view place = text.substr(0, slash);
  std::string_view path = slash == std::string_view::npos ? "" : text.substr(slash);
  ServerUrl url;
  if (place.substr(0, 1) == "[") {
    const size_t close = place.find(']');
    if (close == std::string_view::npos) return wrong("a bracket is not closed");
    url.host = place.substr(1, close - 1);
    place.remove_prefix(close + 1);
  } else {
    url.host = place.substr(0, place.find(':'));
    place.remove_prefix(url.host.size());
  }
  url.port = place.empty() ? "80" : std::string(place.substr(1));
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

Result<SocketAddress> find_server(const ServerUrl& url, double timeout_s) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(url.host.c_str(), url.port.c_str(), &hints, &found);
  if (error != 0) {
    return not_found(fmt::format("cannot look up {}: {}", url.host, ::gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  Status status;
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    SocketAddress address;
    std::memcpy(&address.storage, entry->ai_addr, entry->ai_addrlen);
    address.size = entry->ai_addrlen;
    Socket socket;
    status = connect(url, address, timeout_s, &socket);
    if (status.ok()) return address;
  }
  return status;
}

Result<std::vector<std::string>> list_models(const ServerUrl& url, const SocketAddress& address,
                                             const std::string& api_key, double timeout_s) {
  const std::string request =
      fmt::format("GET {}/v1/models HTTP/1.1\r\nHost: {}\r\n{}Connection: close\r\n\r\n",
                  url.prefix, url.host_header(),
                  api_key.empty() ? "" : fmt::format("Authorization: Bearer {}\r\n", api_key));
  HttpResponse response;
  std::string body;
  RETURN_IF_ERROR(exchange(url, address, request, timeout_s, &response, &body));
  simdjson::dom::parser parser;
  const std::string place = fmt::format("{}/v1/models", url.host_header());
  if (response.status() != 200) {
    return unavailable(
        fmt::format("{}: status {}: {}", place, response.status(), error_message(parser, body)));
  }
  Result<simdjson::dom::element> document = parse_json(parser, body);
  if (!document.ok()) return document.status().in(place);
  const Result<JsonReader> data = JsonReader(*document, "").member("data");
  if (!data.ok()) return data.status().in(place);
  const Result<simdjson::dom::array> list = data->array();
  if (!list.ok()) return list.status().in(place);
  std::vector<std::string> models;
  for (const simdjson::dom::element entry : *list) {
    const JsonReader model(entry, "data[]");
    const Result<std::string_view> id = model.string("id");
    if (!id.ok()) return id.status().in(place);
    models.emplace_back(*id);
  }
  if (models.empty()) return unavailable(place + " lists no model");
  return models;
}

}  // namespace deltad::loadgen
