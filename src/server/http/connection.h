// Connection: one client's TCP connection: reads requests one after another, hands each to the
// handler, writes its answer, and notices at any time that the client has left. All members belong
// to the connection's strand; what other threads call is posted to it.
//
// Two lines of work: serve(), a coroutine that reads, and while an answer is being made keeps one
// read pending (that is how a departure is seen; bytes of a next request are kept); and the outbox,
// which writes what has been queued, one write at a time, everything queued meanwhile in the next.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/http/beast.h"
#include "server/http/io_home.h"
#include "server/http/stream.h"

namespace deltad {

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(std::shared_ptr<IoHome> home, tcp::socket socket);
  ~Connection();

  // Serves it, or refuses it if there are too many.
  void start();
  void drain();  // any thread: close when idle
  void abort();  // any thread: close now

  // Of the answer to request number `turn`, on the strand; ignored if that is over.
  void send(uint64_t turn, HttpResponse response);
  void begin_stream(uint64_t turn, HttpResponse head);
  void push(uint64_t turn, std::string bytes, std::function<void()> written);
  void finish(uint64_t turn, bool close_connection);
  void on_disconnect(uint64_t turn, std::function<void()> callback);
  void abandoned(uint64_t turn);  // nobody is left to answer

  // Any thread.
  void post(std::function<void()> work) { home_->post(strand_, std::move(work)); }
  void post_aside(std::function<void()> work) {
    home_->post(home_->aside.get_executor(), std::move(work));
  }

 private:
  enum class Answer { kNone, kWaiting, kStreaming, kEnded, kComplete };
  using Parser = http::request_parser<http::string_body>;

  net::awaitable<void> serve(IoHome::Room room);
  net::awaitable<bool> handshake();
  net::awaitable<void> say_goodbye();
  net::awaitable<bool> wait_for_bytes();
  net::awaitable<bool> read_request(HttpRequest* request);
  net::awaitable<error_code> read_head(Parser* parser, std::string* wrong);
  net::awaitable<void> watch();
  net::awaitable<void> linger();

  void dispatch(HttpRequest request);
  void reject(const HttpRequest& partial, int status, const std::string& message);
  void queue_head(const HttpResponse& head, std::optional<size_t> content_length);
  void queue(std::string_view bytes);
  void flush();
  void written(const error_code& error);
  void complete();
  void lost();  // the client left, or does not read, or the server stops
  void close();
  void arm(Duration timeout);
  void disarm();
  bool answering(uint64_t turn) const { return turn == turn_ && !lost_; }

  const std::shared_ptr<IoHome> home_;
  Stream stream_;
  tcp::socket& socket_;  // under the stream
  const net::any_io_executor strand_;
  net::steady_timer timer_, look_again_;
  uint64_t timer_turn_ = 0;
  bool timed_out_ = false;
  beast::flat_buffer buffer_;  // read, not yet parsed

  // The request being answered.
  uint64_t turn_ = 0;
  Answer answer_ = Answer::kNone;
  bool head_only_ = false, chunked_ = true, keep_alive_ = true;
  unsigned version_ = 11;
  std::function<void()> on_disconnect_;

  // Outbox.
  std::string pending_, current_;
  std::vector<std::function<void()>> pending_written_, current_written_;
  bool writing_ = false;

  bool lost_ = false, secure_ = false, linger_ = false, idle_ = false, closed_ = false;
};

}  // namespace deltad
