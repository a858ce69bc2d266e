#include "loadgen/generator.h"

#include <fmt/core.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

namespace deltad::loadgen {

// A socket and the exchange on it, if any.
class Connection {
 public:
  explicit Connection(int fd) : fd(fd) {}
  ~Connection() { ::close(fd); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  const int fd;
  bool connected = false, reused = false, watching_writes = true;
  uint64_t number = 0;
  std::string request;  // kept until the exchange ends: it may have to be sent once more
  size_t written = 0;
  std::optional<Exchange> exchange;
};

namespace {

constexpr size_t kReadBytes = 64 << 10;
// Between two looks at the sockets, so that answers' times stay true when many requests are due.
constexpr int kMostStarts = 64;
// Progress is shown and the stop flag seen at least so often.
constexpr auto kTick = std::chrono::milliseconds(250);

std::string error_text(int error) { return std::generic_category().message(error); }

double thread_cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_THREAD, &usage);
  const auto of = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return of(usage.ru_utime) + of(usage.ru_stime);
}

// An open loop needs as many sockets as the server leaves requests waiting.
void raise_file_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

Result<std::unique_ptr<Generator>> Generator::make(const client::SocketAddress& address,
                                                   GeneratorOptions options) {
  raise_file_limit();
  const int epoll = ::epoll_create1(EPOLL_CLOEXEC);
  const int timer = ::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
  std::unique_ptr<Generator> generator(new Generator(address, options, epoll, timer));
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = nullptr;
  if (epoll < 0 || timer < 0 || ::epoll_ctl(epoll, EPOLL_CTL_ADD, timer, &event) != 0) {
    return internal_error("cannot make an event loop: " + error_text(errno));
  }
  return generator;
}

Generator::Generator(const client::SocketAddress& address, GeneratorOptions options, int epoll,
                     int timer)
    : address_(address), options_(options), epoll_(epoll), timer_(timer), buffer_(kReadBytes) {}

Generator::~Generator() {
  connections_.clear();
  if (epoll_ >= 0) ::close(epoll_);
  if (timer_ >= 0) ::close(timer_);
}

Result<GeneratorState> Generator::run(Workload& workload, RequestWriter& writer, Summary* summary,
                                      const std::atomic<bool>& stop,
                                      const OnProgress& on_progress) {
  const double cpu_before = thread_cpu_seconds();
  state_ = {};
  summary_ = summary;
  start_ = last_end_ = Clock::real().now();
  TimePoint tick = start_ + kTick;
  plan_next(workload, start_);
  std::array<epoll_event, 256> events;
  for (;;) {
    TimePoint now = Clock::real().now();
    for (int i = 0; i < kMostStarts && due(now); ++i) {
      start(writer, now);
      plan_next(workload, now);
      now = Clock::real().now();
    }
    expire(now);
    if (now >= tick) {
      state_.elapsed = seconds(now - start_);
      if (on_progress) on_progress(state_);
      tick = now + kTick;
    }
    if (stop.load()) {
      state_.stopped = true;
      last_end_ = now;
    }
    if (state_.stopped || (!planned_ && busy_.empty())) break;
    arm(now, tick);
    const int n = ::epoll_wait(epoll_, events.data(), events.size(), -1);
    if (n < 0 && errno != EINTR) return internal_error("epoll_wait: " + error_text(errno));
    for (int i = 0; i < n; ++i) {
      const epoll_event& event = events[static_cast<size_t>(i)];
      uint64_t expirations = 0;
      if (event.data.ptr != nullptr) {
        handle(static_cast<Connection*>(event.data.ptr), event.events, Clock::real().now());
      } else if (::read(timer_, &expirations, sizeof(expirations)) < 0 && errno != EAGAIN) {
        return internal_error("the timer: " + error_text(errno));
      }
    }
  }
  connections_.clear();
  busy_.clear();
  idle_.clear();
  planned_.reset();
  state_.elapsed = seconds(last_end_ - start_);
  state_.cpu_seconds = thread_cpu_seconds() - cpu_before;
  return state_;
}

bool Generator::due(TimePoint now) const {
  if (!planned_) return false;
  if (options_.concurrency > 0) {
    return busy_.size() < static_cast<size_t>(options_.concurrency);
  }
  return start_ + from_seconds(planned_->at) <= now;
}

void Generator::plan_next(Workload& workload, TimePoint now) {
  planned_ = workload.next();
  if (!planned_ || options_.duration <= 0) return;
  const double at = options_.concurrency > 0 ? seconds(now - start_) : planned_->at;
  if (at >= options_.duration) planned_.reset();
}

void Generator::start(RequestWriter& writer, TimePoint now) {
  // In a closed loop the next request may have been planned long before its turn.
  if (options_.concurrency > 0 && options_.duration > 0 &&
      seconds(now - start_) >= options_.duration) {
    return;
  }
  std::string request = writer.write(*planned_);
  now = Clock::real().now();
  RequestRecord record;
  record.model = planned_->model;
  record.scheduled = options_.concurrency > 0 ? now : start_ + from_seconds(planned_->at);
  record.sent = now;
  const RequestStyle& style = writer.style();
  const AnswerRules rules{style.streamed, planned_->max_tokens, style.ignore_eos};
  const auto number = static_cast<uint64_t>(state_.sent++);
  begin(std::move(request), number, Exchange(std::move(record), rules, parser_), false, now);
  state_.in_flight = busy_.size();
  state_.most_in_flight = std::max(state_.most_in_flight, busy_.size());
}

void Generator::begin(std::string request, uint64_t number, Exchange exchange, bool fresh,
                      TimePoint now) {
  Connection* connection = nullptr;
  if (!fresh && !idle_.empty()) {
    connection = idle_.back();
    idle_.pop_back();
    connection->reused = true;
  } else {
    const int fd =
        ::socket(address_.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
      exchange.fail(Outcome::kLost, "no socket",
                    fmt::format("the load generator got no socket: {}", error_text(errno)), now);
      summary_->add(exchange.record());
      last_end_ = std::max(last_end_, now);
      return;
    }
    auto made = std::make_unique<Connection>(fd);
    connection = made.get();
    connections_.emplace(connection, std::move(made));
    const int on = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    epoll_event event{};
    event.events = EPOLLIN | EPOLLOUT;
    event.data.ptr = connection;
    ::epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event);
  }
  connection->request = std::move(request);
  connection->written = 0;
  connection->number = number;
  connection->exchange.emplace(std::move(exchange));
  busy_.emplace(number, connection);
  if (connection->reused) {
    if (!write(connection)) broken(connection, error_text(errno), now);
    return;
  }
  const auto* address = reinterpret_cast<const sockaddr*>(&address_.storage);
  if (::connect(connection->fd, address, address_.size) != 0 && errno != EINPROGRESS) {
    broken(connection, error_text(errno), now);
  }
}

void Generator::expire(TimePoint now) {
  const Duration timeout = from_seconds(options_.timeout);
  while (!busy_.empty()) {
    Connection* oldest = busy_.begin()->second;
    if (oldest->exchange->record().sent + timeout > now) return;
    oldest->exchange->fail(Outcome::kTimeout, "timeout",
                           fmt::format("no whole answer within {} s", options_.timeout), now);
    ended(oldest);
  }
}

void Generator::arm(TimePoint now, TimePoint next) {
  const auto sooner = [&next](TimePoint t) { next = std::min(next, t); };
  if (planned_ && options_.concurrency == 0) sooner(start_ + from_seconds(planned_->at));
  if (planned_ && due(now)) sooner(now);
  if (!busy_.empty()) {
    sooner(busy_.begin()->second->exchange->record().sent + from_seconds(options_.timeout));
  }
  // steady_clock is CLOCK_MONOTONIC. A time that has passed fires at once.
  const auto at = std::chrono::duration_cast<std::chrono::nanoseconds>(next.time_since_epoch());
  itimerspec spec{};
  spec.it_value.tv_sec = static_cast<time_t>(at.count() / 1'000'000'000);
  spec.it_value.tv_nsec = static_cast<long>(at.count() % 1'000'000'000);
  ::timerfd_settime(timer_, TFD_TIMER_ABSTIME, &spec, nullptr);
}

void Generator::handle(Connection* connection, uint32_t events, TimePoint now) {
  if (connection->exchange && !connection->connected && (events & (EPOLLOUT | EPOLLERR)) != 0) {
    int error = 0;
    socklen_t size = sizeof(error);
    ::getsockopt(connection->fd, SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) return broken(connection, error_text(error), now);
    connection->connected = true;
  }
  if (connection->exchange && connection->connected && (events & EPOLLOUT) != 0 &&
      !write(connection)) {
    return broken(connection, error_text(errno), now);
  }
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) read(connection, now);
}

bool Generator::write(Connection* connection) {
  while (connection->written < connection->request.size()) {
    const ssize_t n = ::send(connection->fd, connection->request.data() + connection->written,
                             connection->request.size() - connection->written, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK) return false;
    if (n < 0) break;
    connection->written += static_cast<size_t>(n);
  }
  const bool more = connection->written < connection->request.size();
  if (more != connection->watching_writes) {
    epoll_event event{};
    event.events = more ? EPOLLIN | EPOLLOUT : EPOLLIN;
    event.data.ptr = connection;
    ::epoll_ctl(epoll_, EPOLL_CTL_MOD, connection->fd, &event);
    connection->watching_writes = more;
  }
  return true;
}

void Generator::read(Connection* connection, TimePoint now) {
  const ssize_t n = ::recv(connection->fd, buffer_.data(), buffer_.size(), 0);
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
  if (!connection->exchange) {  // the server has given up an idle connection
    idle_.erase(std::find(idle_.begin(), idle_.end(), connection));
    return close(connection);
  }
  if (n < 0) return broken(connection, error_text(errno), now);
  Exchange& exchange = *connection->exchange;
  if (n == 0) {
    if (connection->reused && !exchange.begun()) {
      return broken(connection, "the server closed the connection", now);
    }
    exchange.closed(now);
    return ended(connection);
  }
  if (exchange.push({buffer_.data(), static_cast<size_t>(n)}, now)) ended(connection);
}

void Generator::broken(Connection* connection, const std::string& why, TimePoint now) {
  Exchange& exchange = *connection->exchange;
  if (connection->reused && !exchange.begun()) {
    // The server closed the idle connection while the request was on its way: nobody's fault.
    Exchange again = std::move(exchange);
    std::string request = std::move(connection->request);
    const uint64_t number = connection->number;
    busy_.erase(number);
    close(connection);
    return begin(std::move(request), number, std::move(again), true, now);
  }
  exchange.fail(
      Outcome::kLost, connection->connected ? "lost" : "no connection",
      fmt::format("{}: {}", connection->connected ? "connection lost" : "cannot connect", why),
      now);
  ended(connection);
}

void Generator::ended(Connection* connection) {
  Exchange& exchange = *connection->exchange;
  last_end_ = std::max(last_end_, exchange.record().end);
  summary_->add(exchange.record());
  busy_.erase(connection->number);
  state_.in_flight = busy_.size();
  const bool reusable = exchange.reusable() && exchange.record().outcome != Outcome::kMalformed &&
                        connection->written == connection->request.size();
  connection->exchange.reset();
  if (reusable) {
    idle_.push_back(connection);
  } else {
    close(connection);
  }
}

void Generator::close(Connection* connection) { connections_.erase(connection); }

}  // namespace deltad::loadgen
