// RequestWriter: a planned request as the bytes of an HTTP request to an OpenAI-style server. Makes
// prompts up where none is given. One thread.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string>

#include "base/status.h"
#include "client/server_url.h"
#include "loadgen/workload.h"

namespace deltad::loadgen {

struct RequestStyle {
  bool chat = true;  // /v1/chat/completions, else /v1/completions
  bool streamed = true;
  bool ignore_eos = false;          // not OpenAI's, but deltad's, vLLM's and others'
  std::optional<Range> prompt_ids;  // completions only: made-up prompts are ids of this range
  nlohmann::ordered_json extra = nlohmann::ordered_json::object();  // put into each body
  std::string api_key;
  uint64_t seed = 0;  // of the prompts
};

class RequestWriter {
 public:
  RequestWriter(const client::ServerUrl& url, RequestStyle style);

  std::string write(const PlannedRequest& request);
  const RequestStyle& style() const { return style_; }

 private:
  // Words that common tokenizers take as about one token each; random, so that no prefix cache
  // knows them.
  std::string words(int64_t count);

  const RequestStyle style_;
  const std::string head_;  // up to the length
  std::mt19937_64 random_;
};

}  // namespace deltad::loadgen
