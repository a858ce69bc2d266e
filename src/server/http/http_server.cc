#include "server/http/http_server.h"

#include <fmt/core.h>

#include <charconv>
#include <future>
#include <thread>

#include "base/log.h"
#include "base/scheduling.h"
#include "server/http/connection.h"

namespace deltad {
namespace {

constexpr int kBacklog = 4096;
constexpr size_t kRefused = 8;  // connections that are being told that there are too many
constexpr auto kAcceptPause = std::chrono::milliseconds(100);  // no descriptors left

Result<tcp::endpoint> parse_endpoint(const std::string& listen, net::io_context& io) {
  const size_t colon = listen.rfind(':');
  const std::string expected = fmt::format("listen address '{}': expected HOST:PORT", listen);
  if (colon == std::string::npos) return invalid_argument(expected);
  std::string host = listen.substr(0, colon);
  const std::string digits = listen.substr(colon + 1);
  uint16_t port = 0;
  const auto [end, parse_error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (parse_error != std::errc() || end != digits.data() + digits.size() || digits.empty()) {
    return invalid_argument(expected + " with a port from 0 to 65535");
  }
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  if (host.empty()) return invalid_argument(expected);
  error_code error;
  const auto address = net::ip::make_address(host, error);
  if (!error) return tcp::endpoint(address, port);
  tcp::resolver resolver(io);
  const auto found = resolver.resolve(host, digits, error);
  if (error || found.empty()) {
    return invalid_argument(
        fmt::format("listen address '{}': the host is not known: {}", listen, error.message()));
  }
  return found.begin()->endpoint();
}

class HttpServerImpl final : public HttpServer {
 public:
  HttpServerImpl(const HttpOptions& options, HttpHandler& handler,
                 const CertificateStore* certificates)
      : home_(std::make_shared<IoHome>(options, handler, certificates)),
        acceptor_(net::make_strand(home_->io)),
        pause_(acceptor_.get_executor()),
        work_(home_->io.get_executor()),
        aside_work_(home_->aside.get_executor()) {}

  ~HttpServerImpl() override { stop(); }

  Status listen() {
    const Result<tcp::endpoint> endpoint = parse_endpoint(home_->options.listen, home_->io);
    if (!endpoint.ok()) return endpoint.status();
    error_code error;
    acceptor_.open(endpoint->protocol(), error);
    if (!error) acceptor_.set_option(net::socket_base::reuse_address(true), error);
    if (!error) acceptor_.bind(*endpoint, error);
    if (!error) acceptor_.listen(kBacklog, error);
    if (!error) bound_ = acceptor_.local_endpoint(error);
    if (error) {
      return unavailable(
          fmt::format("cannot listen on {}: {}", home_->options.listen, error.message()));
    }
    return Status();
  }

  void run() {
    net::co_spawn(acceptor_.get_executor(), accept_loop(), [](std::exception_ptr error) {
      if (error) log_error("accepting connections failed");
    });
    for (int i = 0; i < std::max(1, home_->options.threads); ++i) {
      threads_.emplace_back([home = home_, first = i == 0] {
        const Promptness granted = run_promptly(home->options.real_time);
        if (first && home->options.real_time && granted != Promptness::kRealTime) {
          log_info(
              "I/O threads run at ordinary priority: real time needs CAP_SYS_NICE or a limit "
              "of rtprio (RLIMIT_RTPRIO)");
        }
        run_loop(home->io);
      });
    }
    threads_.emplace_back([home = home_] { run_loop(home->aside); });
  }

  uint16_t port() const override { return bound_.port(); }
  std::string address() const override {
    const std::string host = bound_.address().to_string();
    return bound_.address().is_v6() ? fmt::format("[{}]:{}", host, bound_.port())
                                    : fmt::format("{}:{}", host, bound_.port());
  }
  size_t connections() const override { return home_->open(); }
  size_t exchanges() const override { return home_->exchanges(); }

  void drain() override {
    home_->draining = true;
    for (const auto& connection : home_->all()) connection->drain();
  }

  bool wait_idle(TimePoint deadline) override { return home_->wait_idle(deadline); }

  void stop() override {
    if (threads_.empty()) return;
    // On the acceptor's strand, so that no connection is made after it.
    std::promise<void> closed;
    net::post(acceptor_.get_executor(), [this, &closed] {
      stopping_ = true;
      error_code ignored;
      acceptor_.close(ignored);
      pause_.cancel();
      closed.set_value();
    });
    closed.get_future().wait();
    for (const auto& connection : home_->all()) connection->abort();
    home_->close();
    work_.reset();
    aside_work_.reset();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

 private:
  static void run_loop(net::io_context& io) {
    for (;;) {
      try {
        io.run();
        return;
      } catch (const std::exception& e) {
        log_error("work on an I/O thread failed: {}", e.what());
      }
    }
  }

  net::awaitable<void> accept_loop() {
    while (!stopping_) {
      error_code error;
      tcp::socket socket = co_await acceptor_.async_accept(
          net::make_strand(home_->io), net::redirect_error(net::use_awaitable, error));
      if (stopping_) break;
      if (error) {
        if (error != net::error::connection_aborted) {
          log_warning("a connection could not be accepted: {}", error.message());
          pause_.expires_after(kAcceptPause);
          co_await pause_.async_wait(net::redirect_error(net::use_awaitable, error));
        }
        continue;
      }
      if (home_->open() >= home_->options.connections + kRefused) continue;  // closed, untold
      std::make_shared<Connection>(home_, std::move(socket))->start();
    }
  }

  const std::shared_ptr<IoHome> home_;
  tcp::acceptor acceptor_;
  net::steady_timer pause_;
  bool stopping_ = false;  // on the acceptor's strand
  tcp::endpoint bound_;
  net::executor_work_guard<net::io_context::executor_type> work_, aside_work_;
  std::vector<std::thread> threads_;
};

}  // namespace

Result<std::unique_ptr<HttpServer>> HttpServer::start(const HttpOptions& options,
                                                      HttpHandler& handler,
                                                      const CertificateStore* certificates) {
  auto server = std::make_unique<HttpServerImpl>(options, handler, certificates);
  RETURN_IF_ERROR(server->listen());
  server->run();
  return std::unique_ptr<HttpServer>(std::move(server));
}

}  // namespace deltad
