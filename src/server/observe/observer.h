// Observer: where all that is measured goes, of every protocol: the counters of /metrics, and
// request records, which it makes. One for the daemon; outlives whatever answers. Any thread.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "server/metrics.h"
#include "server/observe/request_record.h"

namespace deltad {

class Observer {
 public:
  ServerMetrics& metrics() { return metrics_; }

  // received: when the request had been read whole; zero: now.
  std::unique_ptr<RequestRecord> begin(Route route, std::string id, TimePoint received) {
    if (received == TimePoint{}) received = Clock::real().now();
    return std::make_unique<RequestRecord>(*this, route, std::move(id), received);
  }

 private:
  ServerMetrics metrics_;
};

}  // namespace deltad
