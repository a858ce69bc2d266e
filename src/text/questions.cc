#include "text/questions.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "io/file_reader.h"
#include "text/user_message.h"

namespace deltad {

Result<std::vector<Question>> read_questions(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string content, read_file(path));
  return parse_questions(content, path);
}

Result<std::vector<Question>> parse_questions(const std::string& content,
                                              const std::string& where) {
  std::vector<Question> questions;
  std::istringstream lines(content);
  std::string line;
  for (int64_t number = 1; std::getline(lines, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    const auto is_text = [&](const char* key) {
      return json.contains(key) && json[key].is_string();
    };
    if (!json.is_object() || !is_text("prompt") || !is_text("answer"))
      return invalid_argument(fmt::format(
          "{}: line {}: expected {{\"prompt\": \"…\", \"answer\": \"…\"}}", where, number));
    questions.push_back({json["prompt"], json["answer"]});
  }
  if (questions.empty()) return invalid_argument(fmt::format("{}: no questions", where));
  return questions;
}

Result<std::vector<int32_t>> question_ids(const TextAssets& text, const Question& question) {
  if (!text.chat_template)
    return invalid_argument("the model has no chat template, and questions are asked as a chat");
  return user_message_ids(text, question.prompt);
}

}  // namespace deltad
