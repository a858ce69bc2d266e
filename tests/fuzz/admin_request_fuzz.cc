// Any method, path and body at the admin API: an answer that is JSON, a file of the page or vLLM's
// words, or an error in the form that all errors have; never a crash and never a 500. The input is
// "METHOD PATH\n" and the body.
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "base/log.h"
#include "server/admin/api.h"
#include "tests/unit/server/fake_exchange.h"
#include "tests/unit/server/fake_router.h"
#include "tests/unit/server/sample_access.h"

namespace {

using namespace deltad;
using namespace deltad::testing;

void check(const Answer& answer) {
  if (!answer.finished || answer.streaming) abort();
  const int status = answer.response.status;
  if (status >= 500) abort();
  if (status >= 400) {
    const auto json = answer.json();
    if (json.at("error").size() != 4) abort();
    if (json.at("error").at("message").get<std::string>().empty()) abort();
    return;
  }
  const std::string* type = answer.header("Content-Type");
  if (type == nullptr) abort();
  if (*type == "application/json") {
    if (!answer.json().is_object()) abort();
  } else if (type->starts_with("text/plain")) {
    if (answer.response.body.find("Success") != 0) abort();
  } else if (answer.response.body.empty()) {
    abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  set_log_level(LogLevel::kOff);
  const std::string text(reinterpret_cast<const char*>(data), size);
  const size_t line = text.find('\n'), space = text.find(' ');
  if (line == std::string::npos || space > line) return 0;
  FakeRouter router;
  FakeEngine engine;
  Observer observer;
  static const auto access = open_access();
  AdminApi api(*access, observer);
  Serving serving;
  serving.router = &router;
  serving.engine = &engine;
  api.readiness().set_ready(serving);

  HttpRequest request;
  request.method = text.substr(0, space);
  request.target = text.substr(space + 1, line - space - 1);
  request.body = text.substr(line + 1);
  auto answer = std::make_shared<Answer>();
  api.handle(std::move(request), std::make_shared<FakeExchange>(answer));
  answer->pump();
  check(*answer);
  return 0;
}
