#include "server/observe/span_exporter.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/log.h"
#include "client/http_call.h"
#include "server/observe/otlp_json.h"

namespace deltad {
namespace {

Result<int> post_to(const client::ServerUrl& url, const std::string& body, double timeout_s) {
  ASSIGN_OR_RETURN(const client::SocketAddress address, client::find_server(url, timeout_s));
  client::HttpCall call;
  call.method = "POST";
  call.body = body;
  ASSIGN_OR_RETURN(const client::HttpAnswer answer, client::call(url, address, call, timeout_s));
  return answer.status;
}

// As OTLP says; also if nobody answers.
bool may_retry(const Result<int>& status) {
  return !status.ok() || *status == 429 || *status == 502 || *status == 503 || *status == 504;
}

}  // namespace

Result<std::unique_ptr<SpanExporter>> SpanExporter::make(const SpanExporterOptions& options) {
  ASSIGN_OR_RETURN(const client::ServerUrl url, client::parse_url(options.endpoint));
  return std::make_unique<SpanExporter>(
      options, [url, timeout_s = options.timeout_s](const std::string& body) {
        return post_to(url, body, timeout_s);
      });
}

SpanExporter::SpanExporter(const SpanExporterOptions& options, Post post)
    : options_(options), post_(std::move(post)), thread_([this] { run(); }) {}

SpanExporter::~SpanExporter() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    wake_.notify_one();
  }
  thread_.join();
}

void SpanExporter::add(std::vector<Span> spans) {
  MutexLock lock(mutex_);
  if (queue_.size() + spans.size() > options_.queue) {
    counts_.dropped_full += spans.size();
    return;
  }
  const bool was_empty = queue_.empty();
  std::move(spans.begin(), spans.end(), std::back_inserter(queue_));
  if (was_empty || queue_.size() >= options_.batch) wake_.notify_one();
}

SpanCounts SpanExporter::counts() const {
  MutexLock lock(mutex_);
  return counts_;
}

void SpanExporter::run() {
  std::vector<Span> batch;
  while (take(&batch)) send(batch);
}

// Waits for a batch, or for the first of one to have waited long enough. False: the end.
bool SpanExporter::take(std::vector<Span>* batch) {
  batch->clear();
  MutexLock lock(mutex_);
  while (queue_.empty() && !stopping_) wake_.wait(mutex_);
  const TimePoint due = Clock::real().now() + options_.delay;
  while (queue_.size() < options_.batch && !stopping_ && wake_.wait_until(mutex_, due)) {
  }
  if (queue_.empty()) return false;
  const auto end =
      queue_.begin() + static_cast<std::ptrdiff_t>(std::min(queue_.size(), options_.batch));
  batch->assign(std::make_move_iterator(queue_.begin()), std::make_move_iterator(end));
  queue_.erase(queue_.begin(), end);
  return true;
}

void SpanExporter::send(const std::vector<Span>& batch) {
  const std::string body = otlp_json(batch, options_.service);
  Result<int> status = post_(body);
  Duration pause = options_.pause;
  for (int tries = 1; may_retry(status) && tries < options_.tries; ++tries, pause *= 2) {
    if (!pause_before_retry(pause)) break;
    status = post_(body);
  }
  const bool ok = status.ok() && *status >= 200 && *status < 300;
  // One line when it begins and one when it is over, however long it takes.
  if (ok == failing_) {
    failing_ = !ok;
    if (ok)
      log_info("spans reach {} again", options_.endpoint);
    else
      log_warning("spans are lost: {}",
                  status.ok() ? fmt::format("{} answers {}", options_.endpoint, *status)
                              : status.status().message());
  }
  MutexLock lock(mutex_);
  (ok ? counts_.exported : counts_.dropped_failed) += batch.size();
}

// False: there is no time for another try.
bool SpanExporter::pause_before_retry(Duration pause) {
  const TimePoint until = Clock::real().now() + pause;
  MutexLock lock(mutex_);
  while (!stopping_ && Clock::real().now() < until) (void)wake_.wait_until(mutex_, until);
  return !stopping_;
}

}  // namespace deltad
