// Reply: the one way in which endpoints answer over HTTP: adds the headers that every answer
// carries, and ends the request's record when the answer is complete. Belongs to the line of work
// of its exchange.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "server/exchange.h"
#include "server/observe/request_record.h"
#include "server/openai/errors.h"

namespace deltad {

class Reply {
 public:
  // headers: of every answer (X-Request-Id, those of CORS).
  Reply(std::shared_ptr<Exchange> exchange, HttpHeaders headers,
        std::unique_ptr<RequestRecord> record);

  const std::shared_ptr<Exchange>& exchange() const { return exchange_; }
  const std::string& request_id() const { return record_->id(); }
  TimePoint received() const { return record_->received(); }
  ServerMetrics& metrics() const { return record_->metrics(); }
  RequestRecord& record() { return *record_; }

  void json(int status, const Json& body);
  void text(int status, std::string_view content_type, std::string body);
  void error(const ApiError& error);
  void send(HttpResponse response);  // with its own headers beside those of every answer

  // A stream of server-sent events.
  bool streaming() const { return streaming_; }
  void begin_events();
  void event(const Json& data, std::function<void()> written = {});
  void end_events();                            // [DONE]
  void end_events_with(const ApiError& error);  // the error, [DONE], and the connection closes

  void client_gone();  // nobody reads the answer

 private:
  void send(int status, std::string_view content_type, std::string body);
  const std::shared_ptr<Exchange> exchange_;
  const HttpHeaders headers_;
  const std::unique_ptr<RequestRecord> record_;
  bool streaming_ = false;
};

// The answer to an error outside any Reply.
HttpResponse error_response(const ApiError& error, HttpHeaders headers);

}  // namespace deltad
