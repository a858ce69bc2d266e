// AnswerFormat: how a generation's answer looks as JSON, whole or in chunks: one form for chat, one
// for text completions. Pure; belongs to the line of work of its exchange.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "server/generation/generation_sink.h"
#include "server/openai/errors.h"

namespace deltad {

struct AnswerHead {  // the same in every chunk
  std::string id, model;
  int64_t created = 0;
  bool logprobs = false, token_ids = false;
};

class AnswerFormat {
 public:
  explicit AnswerFormat(AnswerHead head) : head_(std::move(head)) {}
  virtual ~AnswerFormat() = default;

  // The chunk with which a choice begins. echo: of completions, what of the prompt is repeated.
  // Null JSON: there is none.
  virtual Json begin(int32_t index, const Piece& echo, const std::vector<int32_t>& prompt_ids) = 0;
  virtual Json chunk(int32_t index, const Piece& piece) = 0;
  virtual Json end(int32_t index, const char* finish_reason) = 0;
  virtual Json usage_chunk(const Usage& usage) = 0;
  virtual Json whole(const std::vector<WholeChoice>& choices, const Usage& usage) = 0;

 protected:
  const AnswerHead head_;
};

std::unique_ptr<AnswerFormat> make_chat_format(AnswerHead head);
std::unique_ptr<AnswerFormat> make_completion_format(AnswerHead head);

// {"id", "object", "created", "model"}
Json answer_json(const AnswerHead& head, const char* object);
Json usage_json(const Usage& usage);
Json bytes_json(const std::string& bytes);

}  // namespace deltad
