#include "server/openai/answer_format.h"

#include <nlohmann/json.hpp>

namespace deltad {

Json answer_json(const AnswerHead& head, const char* object) {
  Json json;
  json["id"] = head.id;
  json["object"] = object;
  json["created"] = head.created;
  json["model"] = head.model;
  return json;
}

Json usage_json(const Usage& usage) {
  Json json;
  json["prompt_tokens"] = usage.prompt_tokens;
  json["completion_tokens"] = usage.completion_tokens;
  json["total_tokens"] = usage.prompt_tokens + usage.completion_tokens;
  json["prompt_tokens_details"]["cached_tokens"] = usage.cached_tokens;
  return json;
}

Json bytes_json(const std::string& bytes) {
  Json json = Json::array();
  for (const char c : bytes) json.push_back(static_cast<unsigned char>(c));
  return json;
}

}  // namespace deltad
