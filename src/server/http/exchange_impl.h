// ConnectionExchange: the Exchange of one request of a connection. Any thread; everything goes to
// the connection's strand.
#pragma once

#include <memory>
#include <utility>

#include "server/http/connection.h"

namespace deltad {

class ConnectionExchange final : public Exchange {
 public:
  ConnectionExchange(std::shared_ptr<Connection> connection, uint64_t turn)
      : connection_(std::move(connection)), turn_(turn) {}
  ~ConnectionExchange() override {
    connection_->post([c = connection_, t = turn_] { c->abandoned(t); });
  }

  void post(std::function<void()> work) override { connection_->post(std::move(work)); }
  void post_aside(std::function<void()> work) override { connection_->post_aside(std::move(work)); }
  void on_disconnect(std::function<void()> callback) override {
    connection_->post([c = connection_, t = turn_, callback = std::move(callback)]() mutable {
      c->on_disconnect(t, std::move(callback));
    });
  }
  void on_deadline(TimePoint deadline, std::function<void()> callback) override {
    connection_->post(
        [c = connection_, t = turn_, deadline, callback = std::move(callback)]() mutable {
          c->on_deadline(t, deadline, std::move(callback));
        });
  }
  void send(HttpResponse response) override {
    connection_->post([c = connection_, t = turn_, response = std::move(response)]() mutable {
      c->send(t, std::move(response));
    });
  }
  void begin_stream(HttpResponse head) override {
    connection_->post([c = connection_, t = turn_, head = std::move(head)]() mutable {
      c->begin_stream(t, std::move(head));
    });
  }
  void push(std::string bytes, std::function<void()> written) override {
    connection_->post([c = connection_, t = turn_, bytes = std::move(bytes),
                       written = std::move(written)]() mutable {
      c->push(t, std::move(bytes), std::move(written));
    });
  }
  void finish(bool close_connection) override {
    connection_->post(
        [c = connection_, t = turn_, close_connection] { c->finish(t, close_connection); });
  }

 private:
  const std::shared_ptr<Connection> connection_;
  const uint64_t turn_;
};

}  // namespace deltad
