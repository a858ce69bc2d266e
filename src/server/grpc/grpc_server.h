// GrpcServer: one gRPC listener: the Inference service or the Admin service (proto/deltad/v1), with
// health and reflection. Owns its threads; those of gRPC only hand work over to them. Until
// set_ready() its health is NOT_SERVING and calls are UNAVAILABLE. start, wait_idle and stop are
// for the thread that owns it. Nothing of gRPC is seen from outside this folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "server/metrics.h"
#include "server/serving.h"

namespace deltad {

struct GrpcOptions {
  std::string listen;               // host:port, [v6]:port; port 0: any free one
  int threads = 2;                  // that parse, tokenize and format
  bool real_time = true;            // before all ordinary threads, where the system permits it
  size_t message_bytes = 8u << 20;  // of a request; more: RESOURCE_EXHAUSTED
  size_t stream_bytes = 1u << 20;   // of a stream, made but not read: then it ends
  Duration write_timeout = std::chrono::seconds(60);  // of a stream, without any progress
  std::vector<std::string> api_keys;                  // none: open to all
};

enum class GrpcRole { kInference, kAdmin };

class GrpcServer {
 public:
  // kUnavailable: the address cannot be had (in use, not permitted). metrics outlives the server.
  static Result<std::unique_ptr<GrpcServer>> start(const GrpcOptions& options, GrpcRole role,
                                                   ServerMetrics& metrics);
  virtual ~GrpcServer() = default;  // = stop()

  virtual void set_ready(const Serving& serving) = 0;
  // New calls get UNAVAILABLE with this reason, and health says NOT_SERVING. Running calls go on.
  virtual void set_not_ready(std::string reason) = 0;

  virtual uint16_t port() const = 0;
  virtual std::string address() const = 0;  // as bound
  virtual size_t calls() const = 0;         // whose answer is not complete
  // Waits until every call is complete; false if the deadline came first.
  virtual bool wait_idle(TimePoint deadline) = 0;
  // Cancels what is left, stops listening, ends the threads.
  virtual void stop() = 0;
};

}  // namespace deltad
