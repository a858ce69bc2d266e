// GenerationReply: a generation's answer in OpenAI's form: whole, or as a stream of server-sent
// events, whose HTTP header is sent with the first choice that begins. Belongs to the line of work
// of its exchange.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/generation/generation_plan.h"
#include "server/generation/generation_sink.h"
#include "server/openai/answer_format.h"
#include "server/openai/reply.h"

namespace deltad {

class GenerationReply final : public GenerationSink {
 public:
  GenerationReply(const GenerationPlan& plan, std::unique_ptr<Reply> reply);

  void post(std::function<void()> work) override { reply_->exchange()->post(std::move(work)); }
  void on_disconnect(std::function<void()> callback) override {
    reply_->exchange()->on_disconnect(std::move(callback));
  }
  RequestRecord& record() override { return reply_->record(); }

  void begin_choice(int32_t index, const Piece& echo,
                    const std::vector<int32_t>& prompt_ids) override;
  void piece(int32_t index, const Piece& piece, TimePoint at) override;
  void end_choice(int32_t index, const char* finish_reason) override;
  void end_stream(const Usage& usage) override;
  void whole(const std::vector<WholeChoice>& choices, const Usage& usage) override;
  void fail(const ApiError& error) override;
  void client_gone() override { reply_->client_gone(); }

 private:
  const std::unique_ptr<Reply> reply_;
  const bool include_usage_;
  const std::unique_ptr<AnswerFormat> format_;
};

}  // namespace deltad
