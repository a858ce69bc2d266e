// TLS of a connection to a server, seen from the client: whose certificates are believed, and which
// one is shown. Everything blocks as the socket does, until its
// deadline. Any thread; a session is one thread's.
#pragma once

#include <openssl/types.h>

#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "client/connect.h"
#include "client/server_url.h"

namespace deltad::client {

struct TlsOptions {
  std::string authorities;       // PEM file; "": those of the system
  std::string certificate, key;  // PEM files, the key without a password; "": none is shown
  bool check_server = true;      // false: whoever answers is believed
};

// HTTP/1.1 over TLS 1.2 or 1.3 on a connected socket, which must outlive it. The server's
// certificate must be for the URL's host.
class TlsSession {
 public:
  // kInvalidArgument: a file of the options cannot be used. kUnavailable: no handshake, and why.
  static Result<TlsSession> open(const Socket& socket, const ServerUrl& url,
                                 const TlsOptions& options);

  Status send(std::string_view bytes);
  // At most `size` bytes; 0: the server has ended the session. A connection that is cut without
  // that is an error, as somebody else may have cut it.
  Result<size_t> receive(char* buffer, size_t size);

 private:
  struct Free {
    void operator()(SSL* session) const;
  };
  TlsSession(const Socket& socket, const ServerUrl& url, SSL* session);

  Status handshake();
  Status advance(int result, const char* what);
  Status flush();

  const Socket* socket_;
  const ServerUrl* url_;
  std::unique_ptr<SSL, Free> session_;
};

}  // namespace deltad::client
