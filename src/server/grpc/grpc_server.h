// GrpcServer: one gRPC listener: the Inference service or the Admin service (proto/deltad/v1), with
// health and reflection. Owns its threads; those of gRPC only hand work over to them. While it is
// not ready its health is NOT_SERVING and new calls are UNAVAILABLE; running calls go on. start,
// wait_idle and stop are for the thread that owns it. Nothing of gRPC is seen from outside this
// folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "server/access/access.h"
#include "server/observe/observer.h"
#include "server/readiness.h"
#include "server/tls/certificate_store.h"

namespace deltad {

struct GrpcOptions {
  std::string listen;                  // host:port, [v6]:port; port 0: any free one
  int threads = 2;                     // that parse, tokenize and format
  bool real_time = true;               // before all ordinary threads, where the system permits it
  size_t connections = 16384;          // beyond it: closed
  size_t connections_per_address = 0;  // 0: as many as there may be; beyond it: closed
  int streams = 1024;                  // calls at once on one connection; more wait at the client
  size_t memory_bytes = 128u << 20;    // of connections and of messages that arrive
  size_t message_bytes = 8u << 20;     // of a request; more: RESOURCE_EXHAUSTED
  size_t stream_bytes = 1u << 20;      // of a stream, made but not read: then it ends
  Duration write_timeout = std::chrono::seconds(60);      // of a stream, without any progress
  Duration idle_timeout = std::chrono::seconds(120);      // of a connection without calls
  Duration handshake_timeout = std::chrono::seconds(10);  // TLS, and the first words of HTTP/2
  Duration reflection_time = std::chrono::seconds(10);    // of a stream of reflection
};

enum class GrpcRole { kInference, kAdmin };

class GrpcServer {
 public:
  // kUnavailable: the address cannot be had (in use, not permitted). certificates: null: no TLS.
  // All outlive the server.
  static Result<std::unique_ptr<GrpcServer>> start(const GrpcOptions& options, GrpcRole role,
                                                   const Access& access, Observer& observer,
                                                   const Readiness& readiness,
                                                   const CertificateStore* certificates = nullptr);
  virtual ~GrpcServer() = default;  // = stop()

  // Says in its health what readiness says now. To be called when that has changed, and now and
  // then for what changes by itself. Any thread.
  virtual void update_health() = 0;

  virtual uint16_t port() const = 0;
  virtual std::string address() const = 0;  // as bound
  virtual size_t calls() const = 0;         // whose answer is not complete
  // Waits until every call is complete; false if the deadline came first.
  virtual bool wait_idle(TimePoint deadline) = 0;
  // Cancels what is left, stops listening, ends the threads.
  virtual void stop() = 0;
};

}  // namespace deltad
