// SpanExporter: sends spans to a collector, as OTLP over HTTP in JSON, in batches from a thread of
// its own. The queue is bounded: while the collector is slow or gone, what finds no room is dropped
// and counted, and no request waits for it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/status.h"
#include "server/observe/span.h"

namespace deltad {

struct SpanExporterOptions {
  std::string endpoint;  // http://HOST[:PORT]/PATH, such as http://localhost:4318/v1/traces
  std::string service = "deltad";
  size_t queue = 4096;                       // spans that may wait
  size_t batch = 512;                        // spans of one call
  Duration delay = std::chrono::seconds(1);  // so long a span waits for others at most
  double timeout_s = 5;                      // of a call, without any progress
  int tries = 3;                             // of a batch, if the collector asks for another
  Duration pause = std::chrono::seconds(1);  // before the second try; then twice as long
};

class SpanExporter final : public SpanSink {
 public:
  // Sends one call's body; the HTTP status of its answer.
  using Post = std::function<Result<int>(const std::string& body)>;

  // kInvalidArgument: the endpoint. It need not be there yet.
  static Result<std::unique_ptr<SpanExporter>> make(const SpanExporterOptions& options);
  SpanExporter(const SpanExporterOptions& options, Post post);
  ~SpanExporter() override;  // what waits is tried once more

  void add(std::vector<Span> spans) override EXCLUDES(mutex_);
  SpanCounts counts() const override EXCLUDES(mutex_);

 private:
  void run() EXCLUDES(mutex_);
  bool take(std::vector<Span>* batch) EXCLUDES(mutex_);
  void send(const std::vector<Span>& batch) EXCLUDES(mutex_);
  bool pause_before_retry(Duration pause) EXCLUDES(mutex_);

  const SpanExporterOptions options_;
  const Post post_;
  mutable Mutex mutex_;
  CondVar wake_;
  std::vector<Span> queue_ GUARDED_BY(mutex_);
  SpanCounts counts_ GUARDED_BY(mutex_);
  bool stopping_ GUARDED_BY(mutex_) = false;
  bool failing_ = false;  // the thread's: the last batch was lost
  std::thread thread_;
};

}  // namespace deltad
