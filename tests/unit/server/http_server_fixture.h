// An HttpServer on a free port of loopback, with a handler that the test controls: for the tests of
// the HTTP layer. Used by the test's thread, the handler by I/O threads.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "server/http/http_server.h"
#include "tests/unit/server/raw_client.h"

namespace deltad::testing {

using std::chrono::milliseconds;

class KeepingHandler final : public HttpHandler {
 public:
  void handle(HttpRequest request, std::shared_ptr<Exchange> exchange) override {
    if (request.target == "/drop") return;
    if (request.target == "/echo") {
      HttpResponse response;
      response.headers = {{"Content-Type", "text/plain"}, {"X-Method", request.method}};
      response.body = request.body;
      exchange->send(std::move(response));
      return;
    }
    exchange->on_disconnect([this] {
      const std::lock_guard lock(mutex_);
      ++gone_;
      changed_.notify_all();
    });
    const std::lock_guard lock(mutex_);
    requests_.push_back(std::move(request));
    exchanges_.push_back(std::move(exchange));
    changed_.notify_all();
  }
  HttpResponse reject(const HttpRequest& partial, int status, const std::string&) override {
    HttpResponse response;
    response.status = status;
    const std::string* name = partial.header("x-name");
    response.body = "refused " + (name != nullptr ? *name : std::string());
    return response;
  }

  std::shared_ptr<Exchange> next() {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, std::chrono::seconds(60),
                           [this] { return !exchanges_.empty(); })) {
      return nullptr;
    }
    auto exchange = std::move(exchanges_.front());
    exchanges_.pop_front();
    return exchange;
  }
  HttpRequest last_request() {
    const std::lock_guard lock(mutex_);
    return requests_.back();
  }
  bool wait_gone(int count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(60), [&] { return gone_ >= count; });
  }
  int gone() {
    const std::lock_guard lock(mutex_);
    return gone_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Exchange>> exchanges_;
  std::vector<HttpRequest> requests_;
  int gone_ = 0;
};

class HttpServerTest : public ::testing::Test {
 protected:
  void start() {
    options_.listen = "127.0.0.1:0";
    auto server = HttpServer::start(options_, handler_);
    ASSERT_TRUE(server.ok()) << server.status().message();
    server_ = std::move(*server);
  }
  static std::string get(const std::string& path, const std::string& headers = "") {
    return "GET " + path + " HTTP/1.1\r\nHost: x\r\n" + headers + "\r\n";
  }
  static std::string post(const std::string& path, const std::string& body,
                          const std::string& headers = "") {
    return "POST " + path +
           " HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" +
           headers + "\r\n" + body;
  }
  template <typename Condition>
  static bool eventually(Condition condition) {
    const TimePoint deadline = Clock::real().now() + std::chrono::seconds(60);
    while (!condition()) {
      if (Clock::real().now() > deadline) return false;
      std::this_thread::sleep_for(milliseconds(1));
    }
    return true;
  }

  HttpOptions options_;
  KeepingHandler handler_;
  std::unique_ptr<HttpServer> server_;
};

}  // namespace deltad::testing
