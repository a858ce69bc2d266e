// One HTTP request and its whole answer, over a connection of its own. Blocks. Any thread.
#pragma once

#include <string>

#include "base/status.h"
#include "client/connect.h"
#include "client/server_url.h"
#include "client/tls.h"

namespace deltad::client {

struct HttpCall {
  std::string method = "GET";
  std::string path;     // from the root, after the URL's prefix; encoded
  std::string body;     // JSON; "": none
  std::string api_key;  // "": none is sent
  TlsOptions tls;       // for https
};

struct HttpAnswer {
  int status = 0;
  std::string body;
};

// An answer with any status is an answer; kUnavailable or kInvalidArgument (not HTTP, options of
// TLS) if there is none. timeout_s: from the connection to the answer's end.
Result<HttpAnswer> call(const ServerUrl& url, const SocketAddress& address, const HttpCall& call,
                        double timeout_s);

}  // namespace deltad::client
