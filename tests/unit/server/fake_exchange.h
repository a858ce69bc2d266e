// An exchange without a socket: posted work waits until the test pumps it, answers are kept.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "server/exchange.h"

namespace deltad::testing {

// What a client sees of one exchange; outlives it.
struct Answer {
  std::deque<std::function<void()>> work;
  std::function<void()> disconnect, expire;
  TimePoint deadline{};  // zero: none was given
  int sends = 0;
  bool streaming = false, finished = false, closed = false, gone = false;
  HttpResponse response;  // whole, or the head of a stream
  std::string stream;

  void pump() {
    while (!work.empty()) {
      const auto next = std::move(work.front());
      work.pop_front();
      next();
    }
  }
  void leave() {
    gone = true;
    if (disconnect) disconnect();
    pump();
  }
  nlohmann::ordered_json json() const { return nlohmann::ordered_json::parse(response.body); }
  // The data of the stream's events, "[DONE]" among them.
  std::vector<std::string> events() const {
    std::vector<std::string> out;
    for (size_t at = 0; at < stream.size();) {
      const size_t end = stream.find("\n\n", at);
      if (stream.compare(at, 6, "data: ") != 0 || end == std::string::npos) return {"malformed"};
      out.push_back(stream.substr(at + 6, end - at - 6));
      at = end + 2;
    }
    return out;
  }
  // The events that are JSON.
  std::vector<nlohmann::ordered_json> chunks() const {
    std::vector<nlohmann::ordered_json> out;
    for (const std::string& event : events()) {
      if (event != "[DONE]") out.push_back(nlohmann::ordered_json::parse(event));
    }
    return out;
  }
  const std::string* header(std::string_view name) const {
    for (const auto& [key, value] : response.headers) {
      if (key == name) return &value;
    }
    return nullptr;
  }
};

class FakeExchange final : public Exchange {
 public:
  explicit FakeExchange(std::shared_ptr<Answer> answer) : answer_(std::move(answer)) {}

  void post(std::function<void()> work) override { answer_->work.push_back(std::move(work)); }
  void post_aside(std::function<void()> work) override { post(std::move(work)); }
  void on_disconnect(std::function<void()> callback) override {
    answer_->disconnect = std::move(callback);
    if (answer_->gone) answer_->disconnect();
  }
  void on_deadline(TimePoint deadline, std::function<void()> callback) override {
    answer_->deadline = deadline;
    answer_->expire = std::move(callback);
  }
  void send(HttpResponse response) override {
    ++answer_->sends;
    answer_->response = std::move(response);
    answer_->finished = true;
  }
  void begin_stream(HttpResponse head) override {
    answer_->response = std::move(head);
    answer_->streaming = true;
  }
  void push(std::string bytes, std::function<void()> written) override {
    answer_->stream += bytes;
    if (written) post(std::move(written));
  }
  void finish(bool close_connection) override {
    answer_->finished = true;
    answer_->closed = close_connection;
  }

 private:
  const std::shared_ptr<Answer> answer_;
};

}  // namespace deltad::testing
