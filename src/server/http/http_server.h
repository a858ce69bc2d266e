// HttpServer: HTTP/1.1 over TCP or TLS. Owns its I/O threads and one thread for long work; each
// connection is a line of work (a strand) that any of the I/O threads runs. Knows nothing of what
// is asked and answered. start, drain, wait_idle and stop are for the thread that owns it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "server/exchange.h"
#include "server/tls/certificate_store.h"

namespace deltad {

struct HttpOptions {
  std::string listen = "127.0.0.1:8080";  // host:port, [v6]:port; port 0: any free one
  int threads = 2;
  bool real_time = true;               // before all ordinary threads, where the system permits it
  size_t connections = 16384;          // beyond it: 503 and closed, or just closed
  size_t connections_per_address = 0;  // 0: as many as there may be; beyond it: 429 and closed
  size_t header_bytes = 64u << 10;
  size_t body_bytes = 8u << 20;
  size_t stream_bytes = 1u << 20;  // of a stream, made but not read by the client: then it is cut
  Duration idle_timeout = std::chrono::seconds(120);   // between requests
  Duration header_timeout = std::chrono::seconds(10);  // from the first byte to the last; also of
                                                       // a TLS handshake
  Duration body_timeout = std::chrono::seconds(60);
  Duration write_timeout = std::chrono::seconds(60);  // without any progress
};

class HttpServer {
 public:
  // Listens at once. handler and certificates (null: no TLS) outlive the server. kInvalidArgument:
  // the address; kUnavailable: it cannot be had (in use, not permitted).
  static Result<std::unique_ptr<HttpServer>> start(const HttpOptions& options, HttpHandler& handler,
                                                   const CertificateStore* certificates = nullptr);
  virtual ~HttpServer() = default;  // = stop()

  virtual uint16_t port() const = 0;
  virtual std::string address() const = 0;  // as bound
  virtual size_t connections() const = 0;   // open now
  virtual size_t exchanges() const = 0;     // requests whose answer is not complete
  // Idle connections are closed, others after their answer. New ones are still served (liveness
  // probes), one request each.
  virtual void drain() = 0;
  // Waits until every answer is complete; false if the deadline came first.
  virtual bool wait_idle(TimePoint deadline) = 0;
  // Stops listening, closes what is open, ends the threads.
  virtual void stop() = 0;
};

}  // namespace deltad
