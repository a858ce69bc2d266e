// What the HTTP layer (server/http) and those who answer (server/openai) agree on: a request as
// plain data, and an exchange through which it is answered. No sockets in here, so that all
// answering is tested without any.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace deltad {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;   // "GET"; as sent
  std::string target;   // path and query, as sent
  HttpHeaders headers;  // names in lower case
  std::string body;
  TimePoint received{};  // when the last byte of it had been parsed

  // The first header of this (lower-case) name; null if there is none.
  const std::string* header(std::string_view name) const {
    for (const auto& [key, value] : headers) {
      if (key == name) return &value;
    }
    return nullptr;
  }
};

struct HttpResponse {
  int status = 200;
  HttpHeaders headers;  // without Content-Length, Connection and Transfer-Encoding
  std::string body;
};

// One request's answer: either send(), or begin_stream(), push()… and finish(). Each may be called
// from any thread; calls take effect in order. After the answer is complete or the client has gone,
// they do nothing. Letting go of the last reference without an answer gives the client a 500.
class Exchange {
 public:
  virtual ~Exchange() = default;

  // Runs work soon, never inside this call and never beside other work of the same exchange. All
  // of a request's state belongs to this line of work, so it needs no lock. Dropped if the server
  // is gone.
  virtual void post(std::function<void()> work) = 0;
  // Runs work beside everything else, on a thread where it may take long (a big body's parsing).
  virtual void post_aside(std::function<void()> work) = 0;
  // Called (like posted work) at most once, if the client leaves, or does not read what it is sent,
  // before the answer has been given whole. At once if it has left already.
  virtual void on_disconnect(std::function<void()> callback) = 0;

  virtual void send(HttpResponse response) = 0;
  virtual void begin_stream(HttpResponse head) = 0;  // head.body is not used
  // written: called (like posted work) when the bytes are with the operating system.
  virtual void push(std::string bytes, std::function<void()> written = {}) = 0;
  virtual void finish(bool close_connection = false) = 0;
};

// Who answers. Called on I/O threads, several at a time; must not block.
class HttpHandler {
 public:
  virtual ~HttpHandler() = default;
  virtual void handle(HttpRequest request, std::shared_ptr<Exchange> exchange) = 0;
  // The answer to what never became a request: 400 malformed, 408 too slow, 413 body too large, 429
  // too many connections from its address, 431 headers too large, 500, 503 too many connections.
  // partial: what is known of it, maybe nothing.
  virtual HttpResponse reject(const HttpRequest& partial, int status,
                              const std::string& message) = 0;
};

}  // namespace deltad
