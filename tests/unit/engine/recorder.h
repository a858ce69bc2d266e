// Records the events of one request and checks their order.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "engine/request.h"

namespace deltad::testing {

struct Record {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  std::vector<std::vector<TokenLogprob>> tops;
  int prompt_events = 0;
  std::vector<TokenLogprob> prompt;
  std::vector<std::vector<TokenLogprob>> prompt_top;
  int finished = 0;
  TokenEvent end;

  void take(const TokenEvent& event) {
    EXPECT_EQ(finished, 0) << "an event after the last";
    switch (event.kind) {
      case TokenEvent::Kind::kPromptLogprobs:
        EXPECT_TRUE(tokens.empty()) << "prompt logprobs after a token";
        ++prompt_events;
        prompt = event.prompt;
        prompt_top = event.prompt_top;
        break;
      case TokenEvent::Kind::kToken:
        tokens.push_back(event.token);
        logprobs.push_back(event.logprob);
        tops.push_back(event.top);
        break;
      case TokenEvent::Kind::kFinished:
        ++finished;
        end = event;
        break;
    }
  }
};

// A request whose events go to the record.
inline Request make_request(std::vector<int32_t> prompt, int32_t max_tokens,
                            const std::shared_ptr<Record>& record) {
  Request request;
  request.prompt = std::move(prompt);
  request.max_tokens = max_tokens;
  request.sampling.temperature = 0;
  request.on_event = [record](const TokenEvent& event) { record->take(event); };
  return request;
}

inline std::vector<int32_t> numbers(int32_t count, int32_t seed = 0) {
  std::vector<int32_t> out;
  for (int32_t i = 0; i < count; ++i) out.push_back((seed * 37 + i * 11 + i * i * 7) % 97);
  return out;
}

}  // namespace deltad::testing
