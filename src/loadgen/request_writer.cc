#include "loadgen/request_writer.h"

#include <fmt/core.h>

#include <array>
#include <nlohmann/json.hpp>
#include <utility>

namespace deltad::loadgen {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<std::string_view, 64> kWords = {
    "time",    "year",     "people", "way",        "day",    "man",     "thing",   "woman",
    "life",    "child",    "world",  "school",     "state",  "family",  "group",   "country",
    "problem", "hand",     "part",   "place",      "case",   "week",    "company", "system",
    "program", "question", "work",   "government", "number", "night",   "point",   "home",
    "water",   "room",     "mother", "area",       "money",  "story",   "fact",    "month",
    "lot",     "right",    "study",  "book",       "eye",    "job",     "word",    "business",
    "issue",   "side",     "kind",   "head",       "house",  "service", "friend",  "father",
    "power",   "hour",     "game",   "line",       "end",    "member",  "law",     "car"};

std::string head_of(const client::ServerUrl& url, const RequestStyle& style) {
  return fmt::format(
      "POST {}/v1/{} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n{}{}", url.prefix,
      style.chat ? "chat/completions" : "completions", url.host_header(),
      style.streamed ? "Accept: text/event-stream\r\n" : "",
      style.api_key.empty() ? "" : fmt::format("Authorization: Bearer {}\r\n", style.api_key));
}

}  // namespace

RequestWriter::RequestWriter(const client::ServerUrl& url, RequestStyle style)
    : style_(std::move(style)),
      head_(head_of(url, style_)),
      random_(random_stream(style_.seed, Stream::kPrompts)) {}

std::string RequestWriter::words(int64_t count) {
  std::string text;
  for (int64_t i = 0; i < count; ++i) {
    if (i > 0) text += ' ';
    text += kWords[random_() % kWords.size()];
  }
  return text;
}

std::string RequestWriter::write(const PlannedRequest& request) {
  Json body = {{"model", request.model}};
  Json prompt;
  if (request.prompt) {
    prompt = *request.prompt;
  } else if (style_.prompt_ids) {
    std::uniform_int_distribution<int64_t> id(style_.prompt_ids->low, style_.prompt_ids->high);
    for (int64_t i = 0; i < request.prompt_tokens; ++i) prompt.push_back(id(random_));
  } else {
    prompt = words(request.prompt_tokens);
  }
  if (style_.chat) {
    body["messages"] = Json::array({{{"role", "user"}, {"content", std::move(prompt)}}});
  } else {
    body["prompt"] = std::move(prompt);
  }
  body["max_tokens"] = request.max_tokens;
  body["temperature"] = 0;
  if (style_.ignore_eos) body["ignore_eos"] = true;
  if (style_.streamed) {
    body["stream"] = true;
    body["stream_options"] = {{"include_usage", true}};
  }
  body.update(style_.extra);
  const std::string text = body.dump(-1, ' ', false, Json::error_handler_t::replace);
  return fmt::format("{}Content-Length: {}\r\n\r\n{}", head_, text.size(), text);
}

}  // namespace deltad::loadgen
