// Questions with the one right answer each, as a file of JSON lines: {"prompt": …, "answer": …}.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "text/text_assets.h"

namespace deltad {

struct Question {
  std::string prompt, answer;
};

// kInvalidArgument names the file and the line.
Result<std::vector<Question>> read_questions(const std::string& path);
// Of a file's content; where: its path, for messages.
Result<std::vector<Question>> parse_questions(const std::string& content, const std::string& where);

// The prompt as the only user message, through the chat template, ready to be answered.
Result<std::vector<int32_t>> question_ids(const TextAssets& text, const Question& question);

}  // namespace deltad
