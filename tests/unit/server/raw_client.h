// A TCP client that sends and reads bytes as the test says. Every wait ends after a minute.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

namespace deltad::testing {

class RawClient {
 public:
  explicit RawClient(uint16_t port, int receive_buffer = 0) {
    fd_ = ::socket(AF_INET, SOCK_STREAM, 0);
    if (receive_buffer > 0) {
      ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof(receive_buffer));
    }
    timeval timeout{60, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
    ::setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  }
  ~RawClient() { close(); }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  bool connected() const { return connected_; }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }
  // Until the text has come; false if the connection or the time ended first.
  bool read_until(std::string_view text) {
    while (received_.find(text) == std::string::npos) {
      if (!read_some()) return false;
    }
    return true;
  }
  // One response with a Content-Length: header and body; "" if it did not come whole.
  std::string read_response(bool with_body = true) {
    if (!read_until("\r\n\r\n")) return "";
    const size_t header = received_.find("\r\n\r\n") + 4;
    size_t length = 0;
    const size_t field = received_.find("Content-Length: ");
    if (with_body && field < header) length = std::strtoul(&received_[field + 16], nullptr, 10);
    while (received_.size() < header + length) {
      if (!read_some()) return "";
    }
    std::string response = received_.substr(0, header + length);
    received_.erase(0, header + length);
    return response;
  }
  // True if the server has closed the connection (all that it sent is then in received()).
  bool read_to_end() {
    while (read_some()) {
    }
    return ended_;
  }
  const std::string& received() const { return received_; }

 private:
  bool read_some() {
    char buffer[65536];
    const ssize_t got = ::recv(fd_, buffer, sizeof(buffer), 0);
    if (got > 0) {
      received_.append(buffer, static_cast<size_t>(got));
      return true;
    }
    ended_ = got == 0 || errno == ECONNRESET;
    return false;
  }

  int fd_ = -1;
  bool connected_ = false, ended_ = false;
  std::string received_;
};

}  // namespace deltad::testing
