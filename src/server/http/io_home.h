// IoHome: where the connections of a server live: the event loops and what they share. Owned by the
// server and by each connection, so that the loops outlive every socket. After close() nothing is
// queued any more: work that comes late (from an engine that still winds down) is dropped.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <unordered_set>

#include "base/mutex.h"
#include "server/exchange.h"
#include "server/http/beast.h"
#include "server/http/http_server.h"

namespace deltad {

class Connection;

class IoHome {
 public:
  IoHome(const HttpOptions& options, HttpHandler& handler) : options(options), handler(handler) {}

  const HttpOptions options;
  HttpHandler& handler;
  net::io_context io;     // connections; run by the I/O threads
  net::io_context aside;  // long work; run by one thread

  std::atomic<bool> draining{false};

  // Queues work on a loop's executor unless the home is closed.
  template <typename Executor>
  void post(const Executor& executor, std::function<void()> work) EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    if (!closed_) net::post(executor, std::move(work));
  }
  void close() EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    closed_ = true;
  }

  void add(Connection* connection) EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    open_.insert(connection);
  }
  void remove(Connection* connection) EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    open_.erase(connection);
  }
  size_t open() EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return open_.size();
  }
  std::vector<std::shared_ptr<Connection>> all() EXCLUDES(mutex_);

  // Requests whose answer is not complete.
  void exchange_began() EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    ++exchanges_;
  }
  void exchange_ended() EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    if (--exchanges_ == 0) idle_.notify_all();
  }
  size_t exchanges() EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return exchanges_;
  }
  bool wait_idle(TimePoint deadline) EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    while (exchanges_ > 0) {
      if (!idle_.wait_until(mutex_, deadline)) return exchanges_ == 0;
    }
    return true;
  }

 private:
  Mutex mutex_;
  CondVar idle_;
  bool closed_ GUARDED_BY(mutex_) = false;
  size_t exchanges_ GUARDED_BY(mutex_) = 0;
  std::unordered_set<Connection*> open_ GUARDED_BY(mutex_);
};

}  // namespace deltad
