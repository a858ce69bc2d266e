// Stream: a connection's bytes, in the clear or through TLS: what Asio and Beast call an
// asynchronous stream. In the clear it costs one comparison an operation. Belongs to its
// connection's strand.
#pragma once

#include <memory>
#include <utility>

#include "server/http/beast.h"

namespace deltad {

class Stream {
 public:
  using executor_type = tcp::socket::executor_type;

  explicit Stream(tcp::socket socket) : socket_(std::move(socket)) {}

  executor_type get_executor() { return socket_.get_executor(); }
  tcp::socket& socket() { return socket_; }
  // Null: in the clear.
  ssl::stream<tcp::socket&>* tls() { return tls_.get(); }
  // From now on through TLS; takes over the session.
  void secure(SSL* session) {
    tls_ = std::make_unique<ssl::stream<tcp::socket&>>(socket_, session);
  }

  template <typename Buffers, typename Token>
  auto async_read_some(const Buffers& buffers, Token&& token) {
    if (tls_) return tls_->async_read_some(buffers, std::forward<Token>(token));
    return socket_.async_read_some(buffers, std::forward<Token>(token));
  }
  template <typename Buffers, typename Token>
  auto async_write_some(const Buffers& buffers, Token&& token) {
    if (tls_) return tls_->async_write_some(buffers, std::forward<Token>(token));
    return socket_.async_write_some(buffers, std::forward<Token>(token));
  }

 private:
  tcp::socket socket_;
  std::unique_ptr<ssl::stream<tcp::socket&>> tls_;
};

}  // namespace deltad
