// Greedy answers to questions, by an engine in this process or by a server. Blocks; any thread.
#pragma once

#include <string>
#include <vector>

#include "client/server_url.h"
#include "engine/engine.h"
#include "text/questions.h"
#include "model/loader.h"

namespace deltad {

// In the order of the questions. progress counts questions.
Result<std::vector<std::string>> answer_questions(Engine& engine, const VariantRef& variant,
                                                  const std::shared_ptr<const TextAssets>& text,
                                                  const std::vector<Question>& questions,
                                                  int max_tokens, const Progress& progress);

struct ServerModel {
  client::ServerUrl url;
  std::string model, api_key;
};
// Through /v1/chat/completions, `concurrency` at a time.
Result<std::vector<std::string>> ask_server(const ServerModel& server,
                                            const std::vector<Question>& questions, int max_tokens,
                                            int concurrency, const Progress& progress);

// How many are exactly the expected ones.
int64_t exact_matches(const std::vector<Question>& questions,
                      const std::vector<std::string>& answers);

}  // namespace deltad
