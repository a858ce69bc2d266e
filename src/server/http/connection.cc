#include "server/http/connection.h"

#include <fmt/core.h>
#include <poll.h>

#include <exception>

#include "base/ascii.h"
#include "base/log.h"
#include "server/http/exchange_impl.h"
#include "server/http/head_check.h"

namespace deltad {
namespace {

// Bytes of next requests that are read ahead while a request is being answered.
constexpr size_t kReadAhead = 64u << 10;
// With so many, whether the client is still there is asked this often.
constexpr Duration kLookAgain = std::chrono::milliseconds(500);
// What a client may still send after it was refused, so that it gets to read why.
constexpr size_t kLingerBytes = 64u << 20;
constexpr Duration kLingerTime = std::chrono::seconds(5);
constexpr Duration kGoodbyeTime = std::chrono::seconds(1);
constexpr size_t kReadSize = 4096;

// The peer has closed its side, or the connection is broken.
bool hung_up(tcp::socket& socket) {
  pollfd at{socket.native_handle(), POLLRDHUP, 0};
  return ::poll(&at, 1, 0) > 0 && at.revents != 0;
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = ascii_lower(c);
  return out;
}

void fill(const http::request<http::string_body>& from, HttpRequest* to) {
  to->method = from.method_string();
  to->target = from.target();
  for (const auto& field : from)
    to->headers.emplace_back(lower(field.name_string()), field.value());
}

}  // namespace

std::vector<std::shared_ptr<Connection>> IoHome::all() {
  std::vector<std::shared_ptr<Connection>> out;
  MutexLock lock(mutex_);
  for (const auto& [connection, address] : open_) {
    if (auto alive = connection->weak_from_this().lock()) out.push_back(std::move(alive));
  }
  return out;
}

Connection::Connection(std::shared_ptr<IoHome> home, tcp::socket socket)
    : home_(std::move(home)),
      stream_(std::move(socket)),
      socket_(stream_.socket()),
      strand_(socket_.get_executor()),
      timer_(strand_),
      look_again_(strand_) {}

Connection::~Connection() { home_->remove(this); }

void Connection::start() {
  error_code ignored;
  const tcp::endpoint peer = socket_.remote_endpoint(ignored);
  // Not sooner: IoHome::all() takes a reference, and only now is there one.
  const IoHome::Room room = home_->add(this, peer.address());
  socket_.set_option(tcp::no_delay(true), ignored);
  socket_.set_option(net::socket_base::keep_alive(true), ignored);
  socket_.non_blocking(true, ignored);  // for flush()
  net::co_spawn(strand_, serve(room), [self = shared_from_this()](std::exception_ptr error) {
    if (!error) return;
    try {
      std::rethrow_exception(error);
    } catch (const std::exception& e) {
      log_error("a connection failed: {}", e.what());
    }
    self->lost();
    self->close();
  });
}

void Connection::drain() {
  post([self = shared_from_this()] {
    error_code ignored;
    if (self->idle_) self->socket_.cancel(ignored);  // ends wait_for_bytes()
  });
}

void Connection::abort() {
  post([self = shared_from_this()] {
    self->lost();
    self->close();
  });
}

net::awaitable<void> Connection::serve(IoHome::Room room) {
  if (room != IoHome::Room::kYes) {
    // A handshake only to refuse would cost more than it tells.
    if (home_->certificates != nullptr) co_return close();
    reject({}, room == IoHome::Room::kNo ? 503 : 429,
           room == IoHome::Room::kNo ? "Too many connections are open."
                                     : "Too many connections are open from this address.");
    co_await watch();
  } else {
    bool open = home_->certificates == nullptr || co_await handshake();
    while (open) {
      open = co_await wait_for_bytes();
      if (!open) break;
      HttpRequest request;
      open = co_await read_request(&request);
      if (open) dispatch(std::move(request));
      if (answer_ != Answer::kNone) co_await watch();
      open = open && keep_alive_ && !lost_ && !home_->draining;
      answer_ = Answer::kNone;
    }
  }
  if (secure_ && !lost_) co_await say_goodbye();
  if (linger_ && !lost_) co_await linger();
  close();
}

net::awaitable<bool> Connection::handshake() {
  SSL* session = home_->certificates->new_session();
  if (session == nullptr) co_return false;
  stream_.secure(session);
  arm(home_->options.header_timeout);
  error_code error;
  co_await stream_.tls()->async_handshake(ssl::stream_base::server,
                                          net::redirect_error(net::use_awaitable, error));
  disarm();
  secure_ = !error && !timed_out_;
  if (!secure_)
    log(LogLevel::kDebug, "a TLS handshake failed: {}", timed_out_ ? "too slow" : error.message());
  co_return secure_;
}

// Tells a TLS client that nothing was cut off; whether it answers does not matter.
net::awaitable<void> Connection::say_goodbye() {
  error_code ignored;
  arm(kGoodbyeTime);
  co_await stream_.tls()->async_shutdown(net::redirect_error(net::use_awaitable, ignored));
  disarm();
}

// Waits without holding a buffer; a thousand idle connections cost little.
net::awaitable<bool> Connection::wait_for_bytes() {
  if (buffer_.size() > 0) co_return true;
  buffer_.shrink_to_fit();
  idle_ = true;
  arm(home_->options.idle_timeout);
  error_code error;
  if (secure_) {
    // What TLS has read ahead does not show in the socket.
    const auto space = buffer_.prepare(kReadSize);
    buffer_.commit(
        co_await stream_.async_read_some(space, net::redirect_error(net::use_awaitable, error)));
  } else {
    co_await socket_.async_wait(tcp::socket::wait_read,
                                net::redirect_error(net::use_awaitable, error));
  }
  disarm();
  idle_ = false;
  co_return !error && !timed_out_;
}

// Until the head is whole and parsed, or an error; wrong: what is wrong with it, if it is no HTTP.
net::awaitable<error_code> Connection::read_head(Parser* parser, std::string* wrong) {
  size_t looked_at = 0;
  for (;;) {
    const std::string_view bytes(static_cast<const char*>(buffer_.data().data()), buffer_.size());
    const char* problem = early_error(bytes, looked_at);
    const size_t end = bytes.find("\r\n\r\n", looked_at < 3 ? 0 : looked_at - 3);
    if (problem == nullptr && end != std::string_view::npos)
      problem = head_error(bytes.substr(0, end + 4));
    if (problem != nullptr) {
      *wrong = problem;
      co_return http::error::bad_value;
    }
    if ((end == std::string_view::npos ? bytes.size() : end) > home_->options.header_bytes)
      co_return http::error::header_limit;
    error_code error;
    if (end != std::string_view::npos) {
      buffer_.consume(parser->put(buffer_.data(), error));
      if (!error && !parser->is_header_done()) error = http::error::bad_value;
      if (error) *wrong = error.message();
      co_return error;
    }
    looked_at = bytes.size();
    const auto space = buffer_.prepare(kReadSize);
    const size_t got =
        co_await stream_.async_read_some(space, net::redirect_error(net::use_awaitable, error));
    buffer_.commit(got);
    if (error) co_return error;
  }
}

net::awaitable<bool> Connection::read_request(HttpRequest* request) {
  const HttpOptions& options = home_->options;
  Parser parser;
  parser.header_limit(static_cast<uint32_t>(options.header_bytes) + kReadSize);
  parser.body_limit(options.body_bytes);
  arm(options.header_timeout);
  std::string wrong;
  error_code error = co_await read_head(&parser, &wrong);
  // Before the body: what comes after it in a chunked one are no headers.
  fill(parser.get(), request);
  if (!error && !parser.is_done()) {
    arm(options.body_timeout);
    if (beast::iequals(parser.get()[http::field::expect], "100-continue")) {
      static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
      co_await net::async_write(stream_, net::buffer(kContinue),
                                net::redirect_error(net::use_awaitable, error));
    }
    if (!error) {
      co_await http::async_read(stream_, buffer_, parser,
                                net::redirect_error(net::use_awaitable, error));
    }
  }
  disarm();
  const bool partly = parser.got_some() || buffer_.size() > 0;
  if (!error) {
    version_ = parser.get().version();
    keep_alive_ = parser.keep_alive();
    request->body = std::move(parser.get().body());
    request->received = Clock::real().now();
    co_return true;
  }
  if (timed_out_) {
    if (partly) reject(*request, 408, "The request did not arrive in time.");
  } else if (error == http::error::body_limit) {
    reject(*request, 413,
           fmt::format("The request's body is too large; at most {} bytes are accepted.",
                       options.body_bytes));
  } else if (error == http::error::header_limit || error == http::error::buffer_overflow) {
    reject(*request, 431,
           fmt::format("The request's headers are too large; at most {} bytes are accepted.",
                       options.header_bytes));
  } else if (error != http::error::end_of_stream && error != http::error::partial_message &&
             error.category() == make_error_code(http::error::end_of_stream).category()) {
    reject(
        *request, 400,
        fmt::format("The request is not valid HTTP: {}.", wrong.empty() ? error.message() : wrong));
  }
  co_return false;
}

// Until the answer is complete or the client has left.
net::awaitable<void> Connection::watch() {
  while (answer_ != Answer::kComplete && !lost_) {
    error_code error;
    if (buffer_.size() < kReadAhead) {
      const auto space = buffer_.prepare(kReadSize);
      const size_t got =
          co_await stream_.async_read_some(space, net::redirect_error(net::use_awaitable, error));
      buffer_.commit(got);
    } else {
      // What is not read hides the end of the stream, so it is asked for.
      error_code ignored;
      look_again_.expires_after(kLookAgain);
      co_await look_again_.async_wait(net::redirect_error(net::use_awaitable, ignored));
      if (hung_up(socket_)) error = net::error::eof;
    }
    if (error && answer_ != Answer::kComplete) lost();
  }
}

// Closing with unread bytes would reset the connection and take the answer with it.
net::awaitable<void> Connection::linger() {
  error_code error;
  socket_.shutdown(tcp::socket::shutdown_send, error);
  arm(kLingerTime);
  size_t total = 0;
  while (!error && !timed_out_ && total < kLingerBytes) {
    buffer_.clear();
    const auto space = buffer_.prepare(kReadAhead);
    total +=
        co_await socket_.async_read_some(space, net::redirect_error(net::use_awaitable, error));
  }
  disarm();
}

void Connection::dispatch(HttpRequest request) {
  ++turn_;
  answer_ = Answer::kWaiting;
  head_only_ = request.method == "HEAD";
  home_->exchange_began();
  auto exchange = std::make_shared<ConnectionExchange>(shared_from_this(), turn_);
  try {
    home_->handler.handle(std::move(request), std::move(exchange));
  } catch (const std::exception& e) {
    log_error("a request failed: {}", e.what());  // its exchange, let go of, answers 500
  }
}

void Connection::reject(const HttpRequest& partial, int status, const std::string& message) {
  ++turn_;
  answer_ = Answer::kWaiting;
  head_only_ = false;
  keep_alive_ = false;
  linger_ = true;
  home_->exchange_began();
  send(turn_, home_->handler.reject(partial, status, message));
}

void Connection::send(uint64_t turn, HttpResponse response) {
  if (!answering(turn) || answer_ != Answer::kWaiting) return;
  answer_ = Answer::kEnded;
  queue_head(response, response.body.size());
  if (!head_only_) queue(response.body);
  flush();
}

void Connection::begin_stream(uint64_t turn, HttpResponse head) {
  if (!answering(turn) || answer_ != Answer::kWaiting) return;
  answer_ = Answer::kStreaming;
  chunked_ = version_ >= 11;
  if (!chunked_) keep_alive_ = false;
  queue_head(head, std::nullopt);
}

void Connection::push(uint64_t turn, std::string bytes, std::function<void()> written) {
  if (!answering(turn) || answer_ != Answer::kStreaming || bytes.empty()) return;
  if (chunked_) queue(fmt::format("{:x}\r\n", bytes.size()));
  queue(bytes);
  if (chunked_) queue("\r\n");
  if (written) pending_written_.push_back(std::move(written));
  if (pending_.size() + current_.size() > home_->options.stream_bytes) {
    lost();
    close();
    return;
  }
  flush();
}

void Connection::finish(uint64_t turn, bool close_connection) {
  if (!answering(turn) || answer_ != Answer::kStreaming) return;
  answer_ = Answer::kEnded;
  if (close_connection) keep_alive_ = false;
  if (chunked_) queue("0\r\n\r\n");
  if (!writing_ && pending_.empty()) {
    complete();
  } else {
    flush();
  }
}

void Connection::on_disconnect(uint64_t turn, std::function<void()> callback) {
  if (turn != turn_ || (answer_ != Answer::kWaiting && answer_ != Answer::kStreaming)) return;
  if (lost_) {
    callback();
  } else {
    on_disconnect_ = std::move(callback);
  }
}

void Connection::on_deadline(uint64_t turn, TimePoint deadline, std::function<void()> callback) {
  if (!answering(turn) || (answer_ != Answer::kWaiting && answer_ != Answer::kStreaming)) return;
  deadline_ = std::make_unique<net::steady_timer>(strand_, deadline);
  deadline_->async_wait([self = shared_from_this(), turn,
                         callback = std::move(callback)](const error_code& cancelled) {
    if (cancelled || !self->answering(turn)) return;
    if (self->answer_ == Answer::kWaiting || self->answer_ == Answer::kStreaming) callback();
  });
}

void Connection::abandoned(uint64_t turn) {
  if (!answering(turn)) return;
  if (answer_ == Answer::kWaiting) {
    send(turn, home_->handler.reject({}, 500, "The server failed to answer."));
  } else if (answer_ == Answer::kStreaming) {
    lost();
    close();
  }
}

void Connection::queue_head(const HttpResponse& head, std::optional<size_t> content_length) {
  const std::string_view reason(http::obsolete_reason(static_cast<http::status>(head.status)));
  if (home_->draining) keep_alive_ = false;
  queue(fmt::format("HTTP/1.{} {} {}\r\n", version_ >= 11 ? 1 : 0, head.status, reason));
  for (const auto& [name, value] : head.headers) queue(fmt::format("{}: {}\r\n", name, value));
  if (content_length) {
    if (head.status != 204) queue(fmt::format("Content-Length: {}\r\n", *content_length));
  } else if (chunked_) {
    queue("Transfer-Encoding: chunked\r\n");
  }
  if (!keep_alive_) {
    queue("Connection: close\r\n");
  } else if (version_ < 11) {
    queue("Connection: keep-alive\r\n");
  }
  queue("\r\n");
}

void Connection::queue(std::string_view bytes) { pending_.append(bytes); }

void Connection::flush() {
  if (writing_ || pending_.empty() || lost_) return;
  writing_ = true;
  current_.swap(pending_);
  current_written_.swap(pending_written_);
  // The system nearly always has room, and then the bytes need no timer and no further turn. An
  // error will be met again below.
  error_code full;
  const size_t sent = secure_ ? 0 : socket_.write_some(net::buffer(current_), full);
  if (!full && sent == current_.size()) return written(error_code());
  arm(home_->options.write_timeout);
  // The condition is asked after each part that went out: the time counts from the last progress.
  auto progress = [this, sent](const error_code& error, size_t so_far) -> size_t {
    if (error) return 0;
    if (so_far > 0 && sent + so_far < current_.size()) arm(home_->options.write_timeout);
    return size_t{64} << 10;
  };
  net::async_write(
      stream_, net::buffer(current_) + sent, progress,
      [self = shared_from_this()](const error_code& error, size_t) { self->written(error); });
}

void Connection::written(const error_code& error) {
  writing_ = false;
  current_.clear();
  std::vector<std::function<void()>> callbacks;
  callbacks.swap(current_written_);
  if (lost_) return;
  disarm();
  if (error) {
    lost();
    close();
    return;
  }
  for (const auto& callback : callbacks) callback();
  if (!pending_.empty()) {
    flush();
  } else if (answer_ == Answer::kEnded) {
    complete();
  }
}

void Connection::complete() {
  answer_ = Answer::kComplete;
  on_disconnect_ = nullptr;
  deadline_.reset();
  current_ = std::string();
  pending_ = std::string();
  home_->exchange_ended();
  error_code ignored;
  socket_.cancel(ignored);  // wakes watch()
  look_again_.cancel();
}

void Connection::lost() {
  if (lost_) return;
  lost_ = true;
  // Once the answer is given whole there is nothing to give up, sent or not.
  const bool wanted = answer_ == Answer::kWaiting || answer_ == Answer::kStreaming;
  const bool answering = wanted || answer_ == Answer::kEnded;
  pending_ = std::string();
  pending_written_.clear();
  std::function<void()> callback = std::move(on_disconnect_);
  on_disconnect_ = nullptr;
  deadline_.reset();
  error_code ignored;
  socket_.cancel(ignored);
  look_again_.cancel();
  if (callback && wanted) callback();
  if (answering) home_->exchange_ended();
}

void Connection::close() {
  if (closed_) return;
  closed_ = true;
  home_->remove(this);  // what is left is only somebody's reference
  disarm();
  error_code ignored;
  socket_.shutdown(tcp::socket::shutdown_both, ignored);
  socket_.close(ignored);
}

void Connection::arm(Duration timeout) {
  timed_out_ = false;
  const uint64_t turn = ++timer_turn_;
  timer_.expires_after(timeout);
  timer_.async_wait([self = shared_from_this(), turn](const error_code&) {
    if (turn != self->timer_turn_) return;
    self->timed_out_ = true;
    error_code ignored;
    self->socket_.cancel(ignored);
  });
}

void Connection::disarm() {
  ++timer_turn_;
  timer_.cancel();
}

}  // namespace deltad
