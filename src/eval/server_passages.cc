#include "eval/server_passages.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "delta/work_list.h"

namespace deltad {
namespace {

using Json = nlohmann::ordered_json;
using Ids = std::vector<int32_t>;
constexpr const char* kTokenize = "/tokenize";
constexpr const char* kCompletions = "/v1/completions";

struct Tokens {
  Ids ids;
  int64_t max_model_len = 0;  // 0: not told
};

Result<Tokens> tokenize(const ServerModel& server, Json body) {
  ASSIGN_OR_RETURN(const Json answer, server.post(kTokenize, std::move(body)));
  const auto tokens = answer.find("tokens"), most = answer.find("max_model_len");
  if (tokens == answer.end() || !tokens->is_array()) return server.lacks(kTokenize, "tokens");
  Tokens out;
  for (const Json& id : *tokens) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() > INT32_MAX)
      return server.lacks(kTokenize, "list of token ids");
    out.ids.push_back(id.get<int32_t>());
  }
  if (most != answer.end() && most->is_number_integer()) out.max_model_len = most->get<int64_t>();
  return out;
}

Result<Ids> chat_ids(const ServerModel& server, const Json& messages, bool to_be_answered) {
  ASSIGN_OR_RETURN(Tokens tokens, tokenize(server, {{"messages", messages},
                                                    {"add_generation_prompt", to_be_answered}}));
  return std::move(tokens.ids);
}

Json message(const char* role, const std::string& content) {
  return {{"role", role}, {"content", content}};
}

// Of tokens first, first + 1, … of the passage.
Result<double> nll_of(const ServerModel& server, const Passage& passage) {
  ASSIGN_OR_RETURN(const Json answer, server.post(kCompletions, {{"prompt", passage.ids},
                                                                 {"echo", true},
                                                                 {"logprobs", 0},
                                                                 {"max_tokens", 0},
                                                                 {"temperature", 0}}));
  const Json::json_pointer at("/choices/0/logprobs/token_logprobs");
  const Json logprobs = answer.contains(at) ? answer[at] : Json();
  if (!logprobs.is_array() || logprobs.size() != passage.ids.size())
    return unimplemented(
        fmt::format("{}{}: asked for {} tokens of a prompt with echo and logprobs, it gave the "
                    "log-probabilities of {}; perplexity needs all of them",
                    server.url.host_header(), kCompletions, passage.ids.size(),
                    logprobs.is_array() ? logprobs.size() : 0));
  double sum = 0;
  for (size_t i = static_cast<size_t>(passage.first); i < logprobs.size(); ++i) {
    if (!logprobs[i].is_number()) return server.lacks(kCompletions, "log-probability of a token");
    sum -= logprobs[i].get<double>();
  }
  return sum;
}

}  // namespace

Result<std::vector<Passage>> server_text_passages(const ServerModel& server,
                                                  const std::string& content, int64_t context) {
  ASSIGN_OR_RETURN(const Tokens begin,
                   tokenize(server, {{"prompt", ""}, {"add_special_tokens", true}}));
  ASSIGN_OR_RETURN(const Tokens all,
                   tokenize(server, {{"prompt", content}, {"add_special_tokens", false}}));
  if (all.max_model_len > 0) context = std::min(context, all.max_model_len);
  return cut_passages(begin.ids, all.ids, context);
}

Result<std::vector<Passage>> server_question_passages(const ServerModel& server,
                                                      const std::vector<Question>& questions,
                                                      int concurrency) {
  std::vector<Passage> passages(questions.size());
  RETURN_IF_ERROR(
      run_work_list(static_cast<int64_t>(questions.size()), concurrency, [&](int64_t i) -> Status {
        Passage& passage = passages[static_cast<size_t>(i)];
        const Question& question = questions[static_cast<size_t>(i)];
        ASSIGN_OR_RETURN(passage.ids,
                         chat_ids(server, Json::array({message("user", question.prompt)}), true));
        passage.first = static_cast<int64_t>(passage.ids.size());
        ASSIGN_OR_RETURN(const Tokens answer, tokenize(server, {{"prompt", question.answer},
                                                                {"add_special_tokens", false}}));
        passage.ids.insert(passage.ids.end(), answer.ids.begin(), answer.ids.end());
        return {};
      }));
  std::optional<int32_t> end;
  for (size_t i = 0; i < questions.size() && !end; ++i) {
    ASSIGN_OR_RETURN(const Ids chat,
                     chat_ids(server,
                              Json::array({message("user", questions[i].prompt),
                                           message("assistant", questions[i].answer)}),
                              false));
    end = token_after(passages[i].ids, chat);
  }
  if (!end)
    return unimplemented(fmt::format(
        "{}: which token ends an answer cannot be told: its chat template does not put the "
        "expected answers after their prompts as they are",
        server.url.host_header()));
  for (Passage& passage : passages) passage.ids.push_back(*end);
  return passages;
}

Result<PassageMean> server_nll(const ServerModel& server, const std::vector<Passage>& passages,
                               int concurrency, const Progress& progress) {
  std::vector<double> sums(passages.size());
  const auto n = static_cast<int64_t>(passages.size());
  std::atomic<int64_t> done{0};
  RETURN_IF_ERROR(run_work_list(n, concurrency, [&](int64_t i) -> Status {
    const auto at = static_cast<size_t>(i);
    ASSIGN_OR_RETURN(sums[at], nll_of(server, passages[at]));
    if (progress) progress(++done, n);
    return {};
  }));
  PassageMean mean;
  for (size_t i = 0; i < passages.size(); ++i)
    mean.add(sums[i], static_cast<int64_t>(passages[i].ids.size()) - passages[i].first);
  return mean;
}

}  // namespace deltad
