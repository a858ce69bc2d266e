// Passages as a server's model tokenizes them, and their log-likelihood there: /tokenize, and
// /v1/completions with echo and logprobs, as deltad has them. Blocks; any thread.
#pragma once

#include <string>
#include <vector>

#include "eval/passages.h"
#include "eval/server_model.h"

namespace deltad {

// As text_passages; a piece is no longer than the server's context either.
Result<std::vector<Passage>> server_text_passages(const ServerModel& server,
                                                  const std::string& content, int64_t context);
// As question_passages; the end token is the one that the chat template puts after an answer.
// concurrency: questions with the server at once.
Result<std::vector<Passage>> server_question_passages(const ServerModel& server,
                                                      const std::vector<Question>& questions,
                                                      int concurrency);

// −log p of the passages' scored tokens, in nats. kUnimplemented if the server does not tell the
// log-probabilities of a prompt.
Result<PassageMean> server_nll(const ServerModel& server, const std::vector<Passage>& passages,
                               int concurrency, const Progress& progress);

}  // namespace deltad
