#include "server/openai/work.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "server/generation/generation.h"
#include "server/openai/chat_request.h"
#include "server/openai/completion_request.h"
#include "server/openai/generation_reply.h"
#include "server/openai/ids.h"
#include "server/openai/tokenize.h"

namespace deltad {
namespace {

// Bodies beyond this are parsed and tokenized beside the I/O threads, which others wait for.
constexpr size_t kLargeBody = 64u << 10;

// One request whose answer takes work in proportion to its body.
struct Job {
  Serving serving;
  std::shared_ptr<const Caller> caller;
  std::shared_ptr<Admission> admission;
  Route route;
  HttpRequest request;
  std::unique_ptr<Reply> reply;

  GenerationPlan plan;
  Json json;
  ApiError error;

  void prepare() {
    if (route == Route::kChat) {
      error = prepare_chat();
    } else if (route == Route::kCompletions) {
      error = prepare_completion();
    } else if (route == Route::kTokenize) {
      error = tokenize(serving, *caller, request.body, &json);
    } else {
      error = detokenize(serving, *caller, request.body, &json);
    }
    request.body = std::string();
  }

  ApiError prepare_chat() {
    ChatRequest chat;
    RETURN_IF_API_ERROR(parse_chat_request(request.body, &chat));
    return plan_chat(serving, *caller, std::move(chat), &plan);
  }
  ApiError prepare_completion() {
    CompletionRequest completion;
    RETURN_IF_API_ERROR(parse_completion_request(request.body, &completion));
    return plan_completion(serving, *caller, std::move(completion), &plan);
  }

  void finish() {
    if (error) {
      reply->error(error);
    } else if (route == Route::kChat || route == Route::kCompletions) {
      auto sink = std::make_unique<GenerationReply>(plan, std::move(reply));
      std::make_shared<Generation>(serving, std::move(plan), std::move(sink), std::move(admission),
                                   random_seed())
          ->start();
    } else {
      reply->json(200, json);
    }
  }
};

}  // namespace

void answer_work(const Serving& serving, std::shared_ptr<const Caller> caller, Route route,
                 HttpRequest request, std::unique_ptr<Reply> reply) {
  // Before the body is looked at: what is refused costs nothing.
  Result<Admission> admission = caller->admit();
  if (!admission.ok()) return reply->error(api_error(admission.status()));
  auto job = std::make_shared<Job>();
  job->serving = serving;
  job->caller = std::move(caller);
  job->admission = std::make_shared<Admission>(std::move(*admission));
  job->route = route;
  job->request = std::move(request);
  job->reply = std::move(reply);
  if (job->request.body.size() <= kLargeBody) {
    job->prepare();
    job->finish();
    return;
  }
  const std::shared_ptr<Exchange> exchange = job->reply->exchange();
  exchange->post_aside([job, exchange] {
    job->prepare();
    exchange->post([job] { job->finish(); });
  });
}

}  // namespace deltad
