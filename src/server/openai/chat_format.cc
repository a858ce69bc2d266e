// The answers of /v1/chat/completions.
#include <nlohmann/json.hpp>
#include <utility>

#include "server/openai/answer_format.h"

namespace deltad {
namespace {

template <typename Token>  // TokenText, TopToken
Json token_json(const Token& token, float logprob) {
  Json json;
  json["token"] = token.text;
  json["logprob"] = logprob;
  json["bytes"] = bytes_json(token.bytes);
  return json;
}

Json logprobs_json(const std::vector<TokenText>& tokens) {
  Json content = Json::array();
  for (const TokenText& token : tokens) {
    Json entry = token_json(token, token.logprob.value_or(0));
    Json top = Json::array();
    for (const TopToken& other : token.top) top.push_back(token_json(other, other.logprob));
    entry["top_logprobs"] = std::move(top);
    content.push_back(std::move(entry));
  }
  Json json;
  json["content"] = std::move(content);
  json["refusal"] = nullptr;
  return json;
}

class ChatFormat final : public AnswerFormat {
 public:
  using AnswerFormat::AnswerFormat;

  Json begin(int32_t index, const Piece&, const std::vector<int32_t>& prompt_ids) override {
    Json delta;
    delta["role"] = "assistant";
    delta["content"] = "";
    Json json = chunk_json(index, std::move(delta), Json(), Json());
    if (head_.token_ids) json["prompt_token_ids"] = prompt_ids;
    return json;
  }

  Json chunk(int32_t index, const Piece& piece) override {
    Json delta;
    delta["content"] = piece.text;
    Json json = chunk_json(index, std::move(delta),
                           head_.logprobs ? logprobs_json(piece.tokens) : Json(), Json());
    if (head_.token_ids) json["choices"][0]["token_ids"] = piece.ids;
    return json;
  }

  Json end(int32_t index, const char* finish_reason) override {
    return chunk_json(index, Json::object(), Json(), Json(finish_reason));
  }

  Json usage_chunk(const Usage& usage) override {
    Json json = answer_json(head_, kChunk);
    json["choices"] = Json::array();
    json["usage"] = usage_json(usage);
    return json;
  }

  Json whole(const std::vector<WholeChoice>& choices, const Usage& usage) override {
    Json json = answer_json(head_, "chat.completion");
    Json list = Json::array();
    for (size_t i = 0; i < choices.size(); ++i) {
      Json choice;
      choice["index"] = i;
      choice["message"]["role"] = "assistant";
      choice["message"]["content"] = choices[i].piece.text;
      choice["message"]["refusal"] = nullptr;
      choice["logprobs"] = head_.logprobs ? logprobs_json(choices[i].piece.tokens) : Json();
      choice["finish_reason"] = choices[i].finish_reason;
      if (head_.token_ids) choice["token_ids"] = choices[i].piece.ids;
      list.push_back(std::move(choice));
    }
    json["choices"] = std::move(list);
    json["usage"] = usage_json(usage);
    if (head_.token_ids) json["prompt_token_ids"] = *choices.front().prompt_ids;
    return json;
  }

 private:
  static constexpr const char* kChunk = "chat.completion.chunk";

  Json chunk_json(int32_t index, Json delta, Json logprobs, Json finish_reason) const {
    Json choice;
    choice["index"] = index;
    choice["delta"] = std::move(delta);
    choice["logprobs"] = std::move(logprobs);
    choice["finish_reason"] = std::move(finish_reason);
    Json json = answer_json(head_, kChunk);
    json["choices"] = Json::array({std::move(choice)});
    return json;
  }
};

}  // namespace

std::unique_ptr<AnswerFormat> make_chat_format(AnswerHead head) {
  return std::make_unique<ChatFormat>(std::move(head));
}

}  // namespace deltad
