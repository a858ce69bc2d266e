// Any bytes to a listener, as a connection reads them: over loopback, with the whole of its
// parsing. Never a crash or a hang; what is answered is HTTP, with as many answers as requests that
// reached the handler and at most one refusal, which is the last and closes the connection.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include "base/log.h"
#include "server/http/http_server.h"

namespace {

using namespace deltad;

constexpr std::string_view kMark = "X-Fuzz-Answer: ";

class Handler final : public HttpHandler {
 public:
  void handle(HttpRequest request, std::shared_ptr<Exchange> exchange) override {
    // What the head check promises of every request that is let through.
    int lengths = 0;
    for (const auto& [name, value] : request.headers) {
      if (name.empty() || name.find_first_of(" \t\r\n:") != std::string::npos) abort();
      if (value.find_first_of("\r\n") != std::string::npos) abort();
      if (name == "content-length" || name == "transfer-encoding") ++lengths;
    }
    if (lengths > 1 || (lengths == 0 && !request.body.empty())) abort();
    ++handled;
    exchange->send(response(200));
  }
  HttpResponse reject(const HttpRequest&, int status, const std::string& message) override {
    if (message.empty()) abort();
    ++rejected;
    return response(status);
  }
  std::atomic<int> handled{0}, rejected{0};

 private:
  static HttpResponse response(int status) {
    HttpResponse answer;
    answer.status = status;
    answer.headers = {{"X-Fuzz-Answer", std::to_string(status)}};
    return answer;
  }
};

struct World {
  World() {
    set_log_level(LogLevel::kOff);
    HttpOptions options;
    options.listen = "127.0.0.1:0";
    options.threads = 1;
    options.real_time = false;
    options.header_bytes = 4096;
    options.body_bytes = 4096;
    // A client's end that comes in one packet with its last bytes may be seen only when these are
    // up.
    options.header_timeout = options.body_timeout = options.idle_timeout =
        std::chrono::milliseconds(50);
    auto started = HttpServer::start(options, handler);
    if (!started.ok()) abort();
    server = std::move(*started);
  }
  Handler handler;
  std::unique_ptr<HttpServer> server;
};

// All that the server says to the bytes, until it closes.
std::string exchange(uint16_t port, std::string_view bytes) {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    if (errno != EADDRNOTAVAIL) abort();
    ::close(fd);  // all ports wait for late packets: nothing can be said of this input
    return "";
  }
  const timeval timeout{20, 0};
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
  const linger at_once{1, 0};  // no port waits for late packets
  ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) break;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  ::shutdown(fd, SHUT_WR);
  std::string answer;
  char buffer[4096];
  ssize_t got = 0;
  while ((got = ::recv(fd, buffer, sizeof(buffer), 0)) > 0)
    answer.append(buffer, static_cast<size_t>(got));
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) abort();  // it hangs
  ::close(fd);
  return answer;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static World& world = *new World;
  world.handler.handled = world.handler.rejected = 0;
  const std::string answer =
      exchange(world.server->port(), std::string_view(reinterpret_cast<const char*>(data), size));
  const int handled = world.handler.handled, rejected = world.handler.rejected;
  int answers = 0;
  for (size_t at = answer.find(kMark); at != std::string::npos; at = answer.find(kMark, at + 1))
    ++answers;
  if (rejected > 1 || answers > handled + rejected) abort();
  // The refusal is the last, and says that the connection closes.
  if (rejected == 1 && answers == handled + rejected) {
    const size_t last = answer.rfind("HTTP/1.");
    if (answer.find("Connection: close", last) == std::string::npos) abort();
    if (answer.compare(last + 9, 1, "4") != 0) abort();
  }
  return 0;
}
