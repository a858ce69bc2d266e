#include "eval/answers.h"

#include <fmt/core.h>

#include <atomic>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/mutex.h"
#include "delta/work_list.h"
#include "text/stream_decoder.h"

namespace deltad {
namespace {

using Json = nlohmann::ordered_json;
constexpr size_t kInEngine = 256;  // questions that are with the engine at once

// What the engine's thread tells of all answers, for the thread that waits.
class Collector {
 public:
  Collector(std::shared_ptr<const Tokenizer> tokenizer, size_t count, const Progress& progress)
      : answers_(count), progress_(progress) {
    for (size_t i = 0; i < count; ++i)
      decoders_.push_back(std::make_unique<StreamDecoder>(tokenizer, std::vector<std::string>(),
                                                          /*skip_special=*/true, false));
  }

  void on_event(size_t question, const TokenEvent& event) {
    MutexLock lock(mutex_);
    if (event.kind == TokenEvent::Kind::kToken)
      answers_[question] += decoders_[question]->push(event.token);
    if (event.kind != TokenEvent::Kind::kFinished) return;
    answers_[question] += decoders_[question]->finish();
    if (event.reason == FinishReason::kError && error_.ok()) error_ = event.status;
    ++done_;
    if (progress_) progress_(static_cast<int64_t>(done_), static_cast<int64_t>(answers_.size()));
    changed_.notify_one();
  }

  void wait_until(size_t done) {
    MutexLock lock(mutex_);
    while (done_ < done) changed_.wait(mutex_);
  }
  Status error() {
    MutexLock lock(mutex_);
    return error_;
  }
  std::vector<std::string> take() {
    MutexLock lock(mutex_);
    return std::move(answers_);
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  size_t done_ GUARDED_BY(mutex_) = 0;
  Status error_ GUARDED_BY(mutex_);
  std::vector<std::string> answers_ GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<StreamDecoder>> decoders_ GUARDED_BY(mutex_);
  const Progress& progress_;
};

Result<std::string> ask_one(const ServerModel& server, const Question& question, int max_tokens) {
  constexpr const char* kPath = "/v1/chat/completions";
  ASSIGN_OR_RETURN(
      const Json answer,
      server.post(kPath,
                  {{"messages", Json::array({{{"role", "user"}, {"content", question.prompt}}})},
                   {"temperature", 0},
                   {"max_tokens", max_tokens}}));
  const Json::json_pointer content("/choices/0/message/content");
  if (!answer.contains(content) || !answer[content].is_string())
    return server.lacks(kPath, "choices[0].message.content");
  return answer[content].get<std::string>();
}

}  // namespace

Result<std::vector<std::string>> answer_questions(Engine& engine, const VariantRef& variant,
                                                  const std::shared_ptr<const TextAssets>& text,
                                                  const std::vector<Question>& questions,
                                                  int max_tokens, const Progress& progress) {
  Collector collector(text->tokenizer, questions.size(), progress);
  size_t submitted = 0;
  Status refused;
  for (; submitted < questions.size() && refused.ok(); ++submitted) {
    if (submitted >= kInEngine) collector.wait_until(submitted - kInEngine + 1);
    auto ids = question_ids(*text, questions[submitted]);
    if (!ids.ok()) {
      refused = ids.status();
      break;
    }
    Request request;
    request.id = fmt::format("eval-{}", submitted);
    request.variant = variant;
    request.prompt = std::move(*ids);
    request.sampling.temperature = 0;
    request.max_tokens = max_tokens;
    request.stop_ids = text->eos_ids;
    request.received = Clock::real().now();
    request.on_event = [&collector, at = submitted](const TokenEvent& event) {
      collector.on_event(at, event);
    };
    refused = engine.submit(std::move(request)).status();
    if (!refused.ok()) break;
  }
  collector.wait_until(submitted);  // its events refer to the collector
  RETURN_IF_ERROR(refused);
  RETURN_IF_ERROR(collector.error());
  return collector.take();
}

Result<std::vector<std::string>> ask_server(const ServerModel& server,
                                            const std::vector<Question>& questions, int max_tokens,
                                            int concurrency, const Progress& progress) {
  std::vector<std::string> answers(questions.size());
  std::atomic<int64_t> done{0};
  const auto n = static_cast<int64_t>(questions.size());
  RETURN_IF_ERROR(run_work_list(n, concurrency, [&](int64_t i) -> Status {
    const auto at = static_cast<size_t>(i);
    ASSIGN_OR_RETURN(answers[at], ask_one(server, questions[at], max_tokens));
    if (progress) progress(++done, n);
    return {};
  }));
  return answers;
}

int64_t exact_matches(const std::vector<Question>& questions,
                      const std::vector<std::string>& answers) {
  int64_t hits = 0;
  for (size_t i = 0; i < questions.size(); ++i) hits += answers[i] == questions[i].answer;
  return hits;
}

}  // namespace deltad
