// IoHome: where the connections of a server live: the event loops and what they share. Owned by the
// server and by each connection, so that the loops outlive every socket. After close() nothing is
// queued any more: work that comes late (from an engine that still winds down) is dropped.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "server/exchange.h"
#include "server/http/beast.h"
#include "server/http/http_server.h"

namespace deltad {

class Connection;

class IoHome {
 public:
  IoHome(const HttpOptions& options, HttpHandler& handler, const CertificateStore* certificates)
      : options(options), handler(handler), certificates(certificates) {}

  const HttpOptions options;
  HttpHandler& handler;
  const CertificateStore* const certificates;  // null: no TLS
  net::io_context io;                          // connections; run by the I/O threads
  net::io_context aside;                       // long work; run by one thread

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

  // Whether there is room for it; it is among the open ones in any case, until it is removed.
  enum class Room { kYes, kNo, kNotForAddress };
  Room add(Connection* connection, const net::ip::address& address) EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    const bool full = open_.size() >= options.connections;
    open_.emplace(connection, address);
    if (options.connections_per_address == 0) return full ? Room::kNo : Room::kYes;
    const size_t of_address = ++by_address_[address];
    if (full) return Room::kNo;
    return of_address > options.connections_per_address ? Room::kNotForAddress : Room::kYes;
  }
  void remove(Connection* connection) EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    const auto found = open_.find(connection);
    if (found == open_.end()) return;
    if (const auto count = by_address_.find(found->second);
        count != by_address_.end() && --count->second == 0)
      by_address_.erase(count);
    open_.erase(found);
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
  std::unordered_map<Connection*, net::ip::address> open_ GUARDED_BY(mutex_);
  std::map<net::ip::address, size_t> by_address_ GUARDED_BY(mutex_);  // if they are counted
};

}  // namespace deltad
