// A generation's answer as Protobuf's messages: UnaryAnswer the whole, StreamAnswer piece by piece.
// Belong to the call's line of work.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/generation/generation_plan.h"
#include "server/generation/generation_sink.h"
#include "server/grpc/answer_writer.h"
#include "server/grpc/proto_text.h"
#include "server/grpc/rpc.h"

namespace deltad {

// What both have of their call. Head: of an answer, its id, model and time.
template <typename Call>
class RpcAnswer : public GenerationSink {
 public:
  RpcAnswer(std::shared_ptr<Call> call, const GenerationPlan& plan, std::string id)
      : call_(std::move(call)),
        id_(std::move(id)),
        model_(plan.model.name),
        ids_(plan.sampling.return_token_ids) {}

  void post(std::function<void()> work) override { call_->post(std::move(work)); }
  void on_disconnect(std::function<void()> handler) override {
    call_->on_disconnect(std::move(handler));
  }
  // The call keeps the same one from its arrival on.
  void on_deadline(TimePoint, std::function<void()> handler) override {
    call_->on_deadline(std::move(handler));
  }
  RequestRecord& record() override { return call_->record(); }
  void fail(const ApiError& error) override { call_->fail(error); }
  void client_gone() override { call_->client_gone(); }

 protected:
  template <typename Head>  // GenerateResponse, ChatResponse, StreamStart
  void write_head(Head* head) const {
    head->set_id(id_);
    head->set_model(valid_utf8(model_));
    head->set_created(unix_now());
  }

  const std::shared_ptr<Call> call_;
  const std::string id_, model_;
  const bool ids_;
};

template <typename Response>
class UnaryAnswer final : public RpcAnswer<UnaryRpc<Response>> {
 public:
  using RpcAnswer<UnaryRpc<Response>>::RpcAnswer;

  void whole(const std::vector<WholeChoice>& choices, const Usage& usage) override {
    Response response;
    this->write_head(&response);
    for (size_t i = 0; i < choices.size(); ++i)
      write_choice(static_cast<int32_t>(i), choices[i], this->ids_, response.add_choices());
    write_usage(usage, response.mutable_usage());
    this->call_->answer(std::move(response));
  }
};

template <typename Response>
class StreamAnswer final : public RpcAnswer<StreamRpc<Response>> {
 public:
  using RpcAnswer<StreamRpc<Response>>::RpcAnswer;

  void begin_choice(int32_t index, const Piece& echo,
                    const std::vector<int32_t>& prompt_ids) override {
    if (!std::exchange(started_, true)) {
      Response start;
      this->write_head(start.mutable_start());
      this->call_->write(std::move(start));
    }
    if (echo.text.empty() && echo.tokens.empty() && !this->ids_) return;
    Response response;
    write_delta(index, echo, this->ids_, response.mutable_delta());
    if (this->ids_)
      response.mutable_delta()->mutable_prompt_token_ids()->Add(prompt_ids.begin(),
                                                                prompt_ids.end());
    this->call_->write(std::move(response));
  }
  void piece(int32_t index, const Piece& piece, TimePoint at) override {
    Response response;
    write_delta(index, piece, this->ids_, response.mutable_delta());
    this->call_->write(std::move(response), at);
  }
  void end_choice(int32_t index, const char* finish_reason) override {
    Response response;
    response.mutable_end()->set_index(index);
    response.mutable_end()->set_finish_reason(finish_reason_proto(finish_reason));
    this->call_->write(std::move(response));
  }
  void end_stream(const Usage& usage) override {
    Response response;
    write_usage(usage, response.mutable_usage());
    this->call_->write(std::move(response));
    this->call_->complete();
  }

 private:
  bool started_ = false;
};

}  // namespace deltad
