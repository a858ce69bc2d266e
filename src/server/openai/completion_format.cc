// The answers of /v1/completions.
#include <nlohmann/json.hpp>
#include <utility>

#include "server/openai/answer_format.h"

namespace deltad {
namespace {

// Parallel lists. Top entries are an object by the token's text; of two tokens with the same text
// (halves of characters) the likelier stays.
Json logprobs_json(const std::vector<TokenText>& tokens) {
  Json texts = Json::array(), logprobs = Json::array(), tops = Json::array(),
       offsets = Json::array();
  for (const TokenText& token : tokens) {
    texts.push_back(token.text);
    offsets.push_back(token.offset);
    logprobs.push_back(token.logprob ? Json(*token.logprob) : Json());
    if (!token.logprob) {
      tops.push_back(nullptr);
      continue;
    }
    Json top = Json::object();
    for (const TopToken& other : token.top) {
      if (!top.contains(other.text)) top[other.text] = other.logprob;
    }
    tops.push_back(std::move(top));
  }
  Json json;
  json["tokens"] = std::move(texts);
  json["token_logprobs"] = std::move(logprobs);
  json["top_logprobs"] = std::move(tops);
  json["text_offset"] = std::move(offsets);
  return json;
}

class CompletionFormat final : public AnswerFormat {
 public:
  using AnswerFormat::AnswerFormat;

  Json begin(int32_t index, const Piece& echo, const std::vector<int32_t>& prompt_ids) override {
    if (echo.text.empty() && echo.tokens.empty() && !head_.token_ids) return Json();
    Json json = answer_json(head_, kObject);
    Json choice = choice_json(index, echo, Json());
    if (head_.token_ids) choice["prompt_token_ids"] = prompt_ids;
    json["choices"] = Json::array({std::move(choice)});
    return json;
  }

  Json chunk(int32_t index, const Piece& piece) override {
    Json json = answer_json(head_, kObject);
    json["choices"] = Json::array({choice_json(index, piece, Json())});
    return json;
  }

  Json end(int32_t index, const char* finish_reason) override {
    Json choice;
    choice["index"] = index;
    choice["text"] = "";
    choice["logprobs"] = nullptr;
    choice["finish_reason"] = finish_reason;
    Json json = answer_json(head_, kObject);
    json["choices"] = Json::array({std::move(choice)});
    return json;
  }

  Json usage_chunk(const Usage& usage) override {
    Json json = answer_json(head_, kObject);
    json["choices"] = Json::array();
    json["usage"] = usage_json(usage);
    return json;
  }

  Json whole(const std::vector<WholeChoice>& choices, const Usage& usage) override {
    Json json = answer_json(head_, kObject);
    Json list = Json::array();
    for (size_t i = 0; i < choices.size(); ++i) {
      Json choice =
          choice_json(static_cast<int32_t>(i), choices[i].piece, Json(choices[i].finish_reason));
      if (head_.token_ids) choice["prompt_token_ids"] = *choices[i].prompt_ids;
      list.push_back(std::move(choice));
    }
    json["choices"] = std::move(list);
    json["usage"] = usage_json(usage);
    return json;
  }

 private:
  static constexpr const char* kObject = "text_completion";

  Json choice_json(int32_t index, const Piece& piece, Json finish_reason) const {
    Json choice;
    choice["index"] = index;
    choice["text"] = piece.text;
    choice["logprobs"] = head_.logprobs ? logprobs_json(piece.tokens) : Json();
    choice["finish_reason"] = std::move(finish_reason);
    if (head_.token_ids) choice["token_ids"] = piece.ids;
    return choice;
  }
};

}  // namespace

std::unique_ptr<AnswerFormat> make_completion_format(AnswerHead head) {
  return std::make_unique<CompletionFormat>(std::move(head));
}

}  // namespace deltad
