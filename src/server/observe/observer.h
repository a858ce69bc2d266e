// Observer: where all that is measured goes, of every protocol: the counters of /metrics, and
// request records, which it makes. One for the daemon; outlives whatever answers. Any thread.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "server/metrics.h"
#include "server/observe/request_record.h"
#include "server/observe/span.h"

namespace deltad {

class Observer {
 public:
  // spans: outlives the observer; null: nothing is traced. ratio: the share that is kept of the
  // traces that begin here; others are kept as their caller's flag says.
  explicit Observer(SpanSink* spans = nullptr, double ratio = 1) : spans_(spans), ratio_(ratio) {}

  ServerMetrics& metrics() { return metrics_; }
  SpanSink* spans() const { return spans_; }
  void set_ratio(double ratio) { ratio_ = ratio; }

  // received: when the request had been read whole; zero: now. trace: the headers as they came.
  std::unique_ptr<RequestRecord> begin(Route route, std::string id, TimePoint received,
                                       const TraceHeaders& trace = {});

 private:
  SpanSink* const spans_;
  std::atomic<double> ratio_;
  ServerMetrics metrics_;
};

}  // namespace deltad
