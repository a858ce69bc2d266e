#include "server/observe/span_exporter.h"

#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"

namespace deltad {
namespace {

std::vector<Span> some(size_t count) {
  Span span;
  span.context.trace = random_trace_id();
  span.context.span = random_span_id();
  span.name = "x";
  return std::vector<Span>(count, span);
}

// A collector that answers as it is told, and may be made to hang.
class Collector {
 public:
  explicit Collector(std::vector<int> answers) : answers_(std::move(answers)) {}

  Result<int> post(const std::string& body) {
    MutexLock lock(mutex_);
    bodies_.push_back(body);
    changed_.notify_all();
    while (hangs_) changed_.wait(mutex_);
    const int answer = answers_.empty() ? 200 : answers_.front();
    if (!answers_.empty()) answers_.erase(answers_.begin());
    if (answer == 0) return unavailable("nobody is there");
    return answer;
  }
  void hang(bool hangs) {
    MutexLock lock(mutex_);
    hangs_ = hangs;
    changed_.notify_all();
  }
  void wait_for_calls(size_t count) {
    MutexLock lock(mutex_);
    while (bodies_.size() < count) changed_.wait(mutex_);
  }
  size_t calls() {
    MutexLock lock(mutex_);
    return bodies_.size();
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::vector<int> answers_ GUARDED_BY(mutex_);
  std::vector<std::string> bodies_ GUARDED_BY(mutex_);
  bool hangs_ GUARDED_BY(mutex_) = false;
};

std::unique_ptr<SpanExporter> exporter(Collector& collector, SpanExporterOptions options = {}) {
  options.delay = options.pause = Duration(0);
  return std::make_unique<SpanExporter>(
      options, [&collector](const std::string& body) { return collector.post(body); });
}

// Of an exporter whose thread has ended: the counts when everything was tried.
SpanCounts after(std::vector<int> answers, size_t* calls) {
  Collector collector(std::move(answers));
  collector.hang(true);
  auto one = exporter(collector);
  one->add(some(3));
  collector.wait_for_calls(1);
  collector.hang(false);
  SpanCounts counts;
  do {
    counts = one->counts();
  } while (counts.exported + counts.dropped_failed == 0);
  one.reset();
  *calls = collector.calls();
  return counts;
}

TEST(SpanExporter, TriesAgainWhatMayHelpAndNoMoreThanItIsTold) {
  size_t calls = 0;
  EXPECT_EQ(after({200}, &calls).exported, 3u);
  EXPECT_EQ(calls, 1u);
  EXPECT_EQ(after({503, 0, 200}, &calls).exported, 3u);
  EXPECT_EQ(calls, 3u);
  EXPECT_EQ(after({429, 504, 502, 200}, &calls).dropped_failed, 3u);
  EXPECT_EQ(calls, 3u);
  EXPECT_EQ(after({400}, &calls).dropped_failed, 3u);
  EXPECT_EQ(calls, 1u);
}

TEST(SpanExporter, DropsAndCountsWhatASlowCollectorDoesNotTake) {
  Collector collector({});
  SpanExporterOptions options;
  options.queue = 8;
  options.batch = 4;
  auto one = exporter(collector, options);
  collector.hang(true);
  one->add(some(4));
  collector.wait_for_calls(1);  // these four are on their way
  one->add(some(5));
  one->add(some(4));  // finds no room
  one->add(some(3));
  EXPECT_EQ(one->counts().dropped_full, 4u);
  EXPECT_EQ(one->counts().exported, 0u);
  collector.hang(false);
  collector.wait_for_calls(3);
  one.reset();
  EXPECT_EQ(collector.calls(), 3u);
}

TEST(SpanExporter, WhatWaitsIsSentBeforeTheEnd) {
  Collector collector({});
  SpanExporterOptions options;
  options.delay = std::chrono::hours(1);
  auto one = std::make_unique<SpanExporter>(
      options, [&collector](const std::string& body) { return collector.post(body); });
  one->add(some(2));
  one.reset();
  EXPECT_EQ(collector.calls(), 1u);
}

TEST(SpanExporter, AnEndpointMustBeAUrl) {
  SpanExporterOptions options;
  options.endpoint = "ftp://example.org/v1/traces";
  EXPECT_EQ(SpanExporter::make(options).status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace deltad
