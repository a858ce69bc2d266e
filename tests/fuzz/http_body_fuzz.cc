// Any bytes as the body of a request: an error in the form that all errors have, or an answer that
// is JSON (a stream: of which every event is), never a crash and never a 500. The first byte
// chooses the endpoint.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>

#include "base/log.h"
#include "server/openai/api.h"
#include "tests/unit/server/fake_exchange.h"
#include "tests/unit/server/fake_router.h"
#include "tests/unit/server/sample_access.h"

namespace {

using namespace deltad;
using namespace deltad::testing;

constexpr std::array<const char*, 4> kPaths = {"/v1/chat/completions", "/v1/completions",
                                               "/tokenize", "/detokenize"};
// Text of one- and two-byte characters, and half of one.
constexpr std::string_view kTokens = "ab END \xC3\xA9\xE2\x82";
constexpr size_t kMostPlayed = 64;  // sequences that get tokens; the others end at once

void play(FakeRouter& router, Answer& answer) {
  const size_t count = router.count();
  for (size_t i = 0; i < count; ++i) {
    const std::shared_ptr<Request> request = router.request(i);
    if (request->prompt.empty()) abort();
    if (request->max_tokens < request->min_tokens) abort();
    if (i < kMostPlayed && request->max_tokens > 0) {
      for (const char c : kTokens) {
        router.token(i, static_cast<unsigned char>(c), -0.5f, {{'x', -1.0f}});
      }
    }
    answer.pump();
    router.finish(i, FinishReason::kLength);
  }
  answer.pump();
}

void check(const Answer& answer) {
  if (!answer.finished) abort();
  const int status = answer.response.status;
  if (status != 200 && status != 400 && status != 404) abort();
  if (answer.streaming) {
    if (answer.chunks().empty() || answer.events().back() != "[DONE]") abort();
    return;
  }
  const auto json = answer.json();
  if ((status != 200) != json.contains("error")) abort();
  if (status != 200 && json.at("error").at("message").get<std::string>().empty()) abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  set_log_level(LogLevel::kOff);
  FakeRouter router;
  FakeEngine engine;
  Observer observer;
  static const auto access = open_access();
  OpenAiApi api({}, *access, observer);
  Serving serving;
  serving.router = &router;
  serving.engine = &engine;
  api.set_ready(serving);

  HttpRequest request;
  request.method = "POST";
  request.target = kPaths[data[0] % kPaths.size()];
  request.body.assign(reinterpret_cast<const char*>(data) + 1, size - 1);
  request.received = Clock::real().now();
  auto answer = std::make_shared<Answer>();
  api.handle(std::move(request), std::make_shared<FakeExchange>(answer));
  answer->pump();
  play(router, *answer);
  check(*answer);
  return 0;
}
