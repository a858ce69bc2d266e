// Generation: one chat or completion request while it runs: submits a sequence for each choice,
// turns their events into the answer, and cancels them when the client leaves, a stop string is
// found or one of them fails. Knows no protocol: the answer goes to a GenerationSink. Everything
// here runs on the sink's line of work; the engine's events are posted to it. Lives until the last
// sequence has ended.
//
// A stream begins with the first event that is no failure, so that a variant that cannot be loaded,
// or a prompt that the engine refuses, is a plain error also of a streamed request.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "server/access/caller.h"
#include "server/generation/choice_stream.h"
#include "server/generation/generation_plan.h"
#include "server/generation/generation_sink.h"

namespace deltad {

class Generation : public std::enable_shared_from_this<Generation> {
 public:
  // admission: its place among its key's requests. seed: for requests that give none.
  Generation(const Serving& serving, GenerationPlan plan, std::unique_ptr<GenerationSink> sink,
             std::shared_ptr<Admission> admission, uint64_t seed);

  void start();

 private:
  struct Choice {
    Choice(std::shared_ptr<const Tokenizer> tokenizer, const ChoiceOptions& options, size_t offset)
        : stream(std::move(tokenizer), options, offset) {}

    ChoiceStream stream;
    Router::Ticket ticket = 0;
    Piece answer;  // whole answers: what has come so far
    TokenEvent prompt_logprobs;
    bool begun = false;    // its first chunk is out
    bool closed = false;   // nothing more is sent for it
    bool ended = false;    // the engine is through with it
    bool started = false;  // it has a token
    const char* finish_reason = nullptr;
  };

  ApiError submit_all();
  Request make_request(size_t index);
  void on_event(size_t index, const TokenEvent& event, TimePoint at);
  void on_token(size_t index, const TokenEvent& event, TimePoint at);
  void on_finished(size_t index, const TokenEvent& event);
  void account(size_t index, const TokenEvent& event);

  void begin_choice(size_t index);
  void send_piece(size_t index, TimePoint at, bool at_end);
  void close_choice(size_t index, const char* reason);
  void complete();
  void fail(const ApiError& error);
  void client_gone();
  void cancel_rest();
  Piece echo_of(const Choice& choice, const PromptTokens& prompt) const;
  const PromptTokens& prompt_of(size_t index) const {
    return plan_.prompts[index / static_cast<size_t>(plan_.sampling.n)];
  }
  std::string finish_reasons() const;

  const Serving serving_;
  const GenerationPlan plan_;
  const std::unique_ptr<GenerationSink> sink_;
  const std::shared_ptr<Admission> admission_;
  const SamplingParams sampling_;
  std::vector<std::unique_ptr<Choice>> choices_;
  size_t submitted_ = 0, ended_ = 0;
  Usage usage_;
  bool over_ = false;  // the answer is complete, failed or unwanted
};

}  // namespace deltad
