// Rpc: one call, from its arrival to its status, between gRPC's threads and its own line of work,
// to which all of its state belongs. Lives until gRPC is through with it and nobody holds it any
// more. UnaryRpc and StreamRpc are its two forms: gRPC's reactors.
//
// A deadline is kept by a timer on the server's threads: its status is sent at once, whatever the
// engine is doing, and the engine hears of it by the handler of on_deadline().
#pragma once

#include <grpc/grpc.h>
#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "server/access/caller.h"
#include "server/grpc/errors.h"
#include "server/grpc/methods.h"
#include "server/grpc/rpc_home.h"
#include "server/observe/request_record.h"

namespace deltad {

class Rpc : public std::enable_shared_from_this<Rpc> {
 public:
  // request: the type of its request.
  Rpc(std::shared_ptr<RpcHome> home, const KnownMethod& method,
      const google::protobuf::Descriptor& request, grpc::CallbackServerContext& context);
  virtual ~Rpc() = default;

  // Once, before gRPC is given the reactor: from now on it keeps itself. Who may not go on is
  // answered; else work is called, on the line. gRPC's request lives until the last word.
  void begin(std::function<void(const Serving& serving)> work);

  RpcHome& home() const { return *home_; }
  TimePoint deadline() const { return deadline_; }
  RequestRecord& record() { return *record_; }
  // Of who may go on. The admission is of methods that are metered, and goes to who uses it.
  const std::shared_ptr<const Caller>& caller() const { return caller_; }
  std::shared_ptr<Admission> take_admission() { return std::move(admission_); }

  // Any thread. Work that throws ends the call with INTERNAL.
  void post(std::function<void()> work);
  // Work in proportion to `bytes`, then `after`: beside the other calls if it may take long. If the
  // work throws, the call ends with INTERNAL. Any thread.
  void prepare(size_t bytes, std::function<void()> work, std::function<void()> after);

  // On the line. One of the handlers is called once, if that comes before the answer is complete;
  // it is to end in fail() or client_gone(). Without a handler the call ends by itself.
  void on_disconnect(std::function<void()> handler) { on_disconnect_ = std::move(handler); }
  void on_deadline(std::function<void()> handler) { on_deadline_ = std::move(handler); }

  // The last word; later ones are ignored. On the line.
  bool over() const { return over_; }
  void fail(const ApiError& error);
  void client_gone();

 protected:
  // On the line, once: gRPC's Finish.
  virtual void finish(grpc::Status status) = 0;
  // Whether something waits for the client to read it, past which no status gets. On the line.
  virtual bool writing() const { return false; }
  void succeeded() { end(grpc::StatusCode::OK); }
  // As if the client had left, but it is told why, past all that it has not read. On the line.
  void cut(const ApiError& error);

  void cancelled();  // by gRPC: the client has left. Any thread
  void done();       // by gRPC: the last that it says. Any thread

 private:
  ApiError admit(Serving* serving);
  void start_timer(double request_seconds);
  void send_now(const ApiError& error);
  void broken(const char* what);
  void left();
  void expired();
  void end(grpc::StatusCode code);

  const std::shared_ptr<RpcHome> home_;
  const KnownMethod& method_;
  const google::protobuf::Descriptor& request_;
  grpc::CallbackServerContext& context_;  // until done()
  const std::shared_ptr<WorkLine> line_;
  const std::unique_ptr<RequestRecord> record_;
  TimePoint deadline_;
  std::shared_ptr<const Caller> caller_;
  std::shared_ptr<Admission> admission_;
  bool over_ = false;
  grpc::StatusCode gone_ = grpc::StatusCode::CANCELLED;  // what client_gone() means
  std::function<void()> on_disconnect_, on_deadline_;
  std::optional<WorkThreads::Timer> timer_;
  std::shared_ptr<Rpc> self_;  // until done()
  // Set once it keeps itself. gRPC calls cancelled() and done() after begin(); its library does not
  // show ThreadSanitizer how, so this does.
  std::atomic<bool> begun_{false};
};

template <typename Response>
class UnaryRpc final : public grpc::ServerUnaryReactor, public Rpc {
 public:
  template <typename... Arguments>
  explicit UnaryRpc(Response* response, Arguments&&... arguments)
      : Rpc(std::forward<Arguments>(arguments)...), response_(response) {}

  void answer(Response response) {  // on the line
    if (over()) return;
    *response_ = std::move(response);
    succeeded();
    finish(grpc::Status::OK);
  }

 private:
  void finish(grpc::Status status) override { Finish(std::move(status)); }
  void OnCancel() override { cancelled(); }
  void OnDone() override { done(); }

  Response* const response_;  // gRPC's, until Finish
};

template <typename Response>
class StreamRpc final : public grpc::ServerWriteReactor<Response>, public Rpc {
 public:
  template <typename... Arguments>
  explicit StreamRpc(Arguments&&... arguments) : Rpc(std::forward<Arguments>(arguments)...) {}

  // Queued while the client does not read; beyond the bound the stream ends. at: when what it says
  // became known. On the line.
  void write(Response message, TimePoint at = TimePoint{}) {
    if (over()) return;
    const size_t bytes = message.ByteSizeLong();
    if (queued_bytes_ + bytes > home().options.stream_bytes && !queue_.empty())
      return cut(slow("The client does not read its stream."));
    queued_bytes_ += bytes;
    queue_.push_back({std::move(message), bytes, at});
    if (queue_.size() == 1) write_first();
  }
  void complete() {  // on the line
    if (over()) return;
    succeeded();
    finish(grpc::Status::OK);
  }

 private:
  struct Queued {
    Response message;
    size_t bytes;
    TimePoint at;
  };

  void finish(grpc::Status status) override {
    status_ = std::move(status);
    if (queue_.empty()) this->Finish(std::move(*status_));
  }
  bool writing() const override { return !queue_.empty(); }
  void write_first() {
    timer_ = home().threads.at(
        Clock::real().now() + home().options.write_timeout,
        [self = self(), turn = ++writes_] { self->post([self, turn] { self->stuck(turn); }); });
    this->StartWrite(&queue_.front().message);
  }
  // Also after the last word, which has then not been read either.
  void stuck(uint64_t turn) {
    if (turn == writes_ && !queue_.empty())
      cut(slow("The client has read nothing of its stream for too long."));
  }
  static ApiError slow(const char* what) { return api_error(resource_exhausted(what)); }
  void wrote(bool ok) {
    home().threads.forget(timer_);
    const Queued& first = queue_.front();
    if (ok && first.at != TimePoint{})
      record().metrics().path(PathPart::kWrite, seconds(Clock::real().now() - first.at));
    queued_bytes_ -= first.bytes;
    queue_.pop_front();
    if (!ok) {  // the client has left, or the stream was cut
      queue_.clear();
      queued_bytes_ = 0;
    }
    if (!queue_.empty()) return write_first();
    if (status_) this->Finish(std::move(*status_));
  }
  std::shared_ptr<StreamRpc> self() {
    return std::static_pointer_cast<StreamRpc>(this->shared_from_this());
  }

  void OnWriteDone(bool ok) override {
    post([self = self(), ok] { self->wrote(ok); });
  }
  void OnCancel() override { cancelled(); }
  void OnDone() override { done(); }

  std::deque<Queued> queue_;  // the first is being written
  size_t queued_bytes_ = 0;
  uint64_t writes_ = 0;
  std::optional<grpc::Status> status_;  // the last word, once it has come
  WorkThreads::Timer timer_{};
};

}  // namespace deltad
