// Exchange: one request's answer, from the first byte to the verdict. Sees bytes and times, no
// socket. One thread.
#pragma once

#include <simdjson.h>

#include <string>
#include <string_view>

#include "client/http_response.h"
#include "loadgen/answer_reader.h"
#include "loadgen/record.h"

namespace deltad::loadgen {

class Exchange {
 public:
  // record: model, scheduled and sent are set; the rest is filled in here.
  Exchange(RequestRecord record, AnswerRules rules, simdjson::dom::parser& parser);

  // Each returns whether the exchange has ended: record() is then final, and nothing more may be
  // pushed.
  bool push(std::string_view bytes, TimePoint now);
  bool closed(TimePoint now);  // by the server
  bool fail(Outcome outcome, std::string error, std::string detail, TimePoint now);

  bool begun() const { return response_.begun(); }
  // Whether another request may follow on the same connection.
  bool reusable() const { return response_.complete() && response_.keep_alive(); }
  RequestRecord& record() { return record_; }

 private:
  bool take(const Status& status, TimePoint now);
  bool complete(TimePoint now);

  RequestRecord record_;
  const AnswerRules rules_;
  simdjson::dom::parser& parser_;
  client::HttpResponse response_;
  AnswerReader reader_;
  std::string body_;  // just come; of an answer that is no 200, all of it
};

}  // namespace deltad::loadgen
