// deltactl generate: answers one prompt on this machine, printing the text as it comes.
#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <random>

#include "base/mutex.h"
#include "delta/variant_text.h"
#include "deltactl/commands.h"
#include "deltactl/console.h"
#include "deltactl/model_session.h"
#include "engine/engine.h"
#include "text/stream_decoder.h"
#include "text/user_message.h"

namespace deltad {
namespace {

struct Options {
  ModelOptions model;
  std::string prompt, chat;
  int max_tokens = 256;
  double temperature = 0;
  int64_t seed = -1;
  bool json = false;
};

// Collects one request's events (engine's thread) for the main thread.
class Waiter {
 public:
  void on_event(const TokenEvent& event) {
    MutexLock lock(mutex_);
    events_.push_back(event);
    changed_.notify_one();
  }
  std::vector<TokenEvent> take() {
    MutexLock lock(mutex_);
    while (events_.empty()) changed_.wait(mutex_);
    return std::exchange(events_, {});
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::vector<TokenEvent> events_ GUARDED_BY(mutex_);
};

Result<std::vector<int32_t>> prompt_ids(const Options& options, const TextAssets& text) {
  if (options.chat.empty()) {
    EncodeOptions encode;
    encode.add_special = true;
    return text.tokenizer->encode(options.prompt, encode);
  }
  if (!text.chat_template) return invalid_argument("the model has no chat template: use --prompt");
  return user_message_ids(text, options.chat);
}

Result<int> run(const Options& options) {
  if (options.prompt.empty() == options.chat.empty())
    return invalid_argument("give either --prompt or --chat");
  ASSIGN_OR_RETURN(ModelSession session, open_session(options.model));
  const std::string delta = options.model.deltas.empty() ? "" : options.model.deltas[0];
  ASSIGN_OR_RETURN(const auto text, variant_text(delta, session.base->text));
  if (!text) return invalid_argument(options.model.base + ": the model has no tokenizer");
  ASSIGN_OR_RETURN(const auto engine, Engine::make(session.base->config(), session.base->table,
                                                   *session.base->backend, EngineOptions{}));

  Waiter waiter;
  Request request;
  request.id = "generate";
  request.variant = session.variants.empty() ? nullptr : session.variants[0];
  ASSIGN_OR_RETURN(request.prompt, prompt_ids(options, *text));
  request.sampling.temperature = static_cast<float>(options.temperature);
  request.sampling.seed =
      options.seed >= 0 ? static_cast<uint64_t>(options.seed) : std::random_device{}();
  request.max_tokens = options.max_tokens;
  request.stop_ids = text->eos_ids;
  request.received = Clock::real().now();
  request.on_event = [&](const TokenEvent& event) { waiter.on_event(event); };
  RETURN_IF_ERROR(engine->submit(std::move(request)).status());

  StreamDecoder decoder(text->tokenizer, {}, true, false);
  std::string answer;
  const auto emit = [&](const std::string& piece) {
    answer += piece;
    if (options.json) return;
    std::fwrite(piece.data(), 1, piece.size(), stdout);
    std::fflush(stdout);
  };
  for (;;) {
    for (const TokenEvent& event : waiter.take()) {
      if (event.kind == TokenEvent::Kind::kToken) emit(decoder.push(event.token));
      if (event.kind != TokenEvent::Kind::kFinished) continue;
      if (event.reason == FinishReason::kError) return event.status;
      emit(decoder.finish());
      if (options.json) {
        print_json({{"text", answer},
                    {"finish_reason", finish_reason_name(event.reason)},
                    {"prompt_tokens", event.prompt_tokens},
                    {"output_tokens", event.output_tokens}});
      } else {
        fmt::print("\n");
      }
      return 0;
    }
  }
}

}  // namespace

void add_generate(Command& app, int* exit_code) {
  auto options = std::make_shared<Options>();
  Command* command = app.add_subcommand("generate", "Answer one prompt");
  add_model_options(command, &options->model, false);
  command->add_option("--prompt", options->prompt, "Text to continue");
  command->add_option("--chat", options->chat,
                      "A user message to answer, through the chat template");
  command->add_option("--max-tokens", options->max_tokens, "Longest answer (default 256)")
      ->range(1, 1 << 24);
  command
      ->add_option("--temperature", options->temperature,
                   "0: the most likely token each time (default 0)")
      ->range(0.0, 100.0);
  command->add_option("--seed", options->seed, "Makes a sampled answer reproducible")
      ->not_negative();
  add_json_option(command, &options->json);
  run_command(command, exit_code, &options->json, [options] { return run(*options); });
}

}  // namespace deltad
