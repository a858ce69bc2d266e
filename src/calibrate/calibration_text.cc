#include "calibrate/calibration_text.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "text/utf8.h"

namespace deltad {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kHeldOut = 8;          // one sequence in so many
constexpr size_t kPieceTokens = 256;    // of plain text
constexpr size_t kMostBytes = 1 << 20;  // more would take hours, and fit no better
constexpr int64_t kLeastTokens = 16;    // with fewer, what is held out says nothing

bool is_text(const Json& object, const char* key) {
  return object.contains(key) && object[key].is_string();
}

// The messages of one line; null if it is no chat.
Json messages_of(const Json& line) {
  if (!line.is_object()) return {};
  if (is_text(line, "prompt") && is_text(line, "answer"))
    return Json::array({{{"role", "user"}, {"content", line["prompt"]}},
                        {{"role", "assistant"}, {"content", line["answer"]}}});
  if (!line.contains("messages") || !line["messages"].is_array() || line["messages"].empty())
    return {};
  for (const Json& message : line["messages"])
    if (!message.is_object() || !is_text(message, "role") || !is_text(message, "content"))
      return {};
  return line["messages"];
}

// Without a template, the contents under each other.
Result<TokenSequence> chat_ids(const TextAssets& text, const Json& messages) {
  EncodeOptions encode;
  if (!text.chat_template) {
    std::string joined;
    for (const Json& message : messages)
      joined += (joined.empty() ? "" : "\n") + message["content"].get<std::string>();
    encode.parse_special = false;
    encode.add_special = true;
    return text.tokenizer->encode(joined, encode);
  }
  const Json variables = {{"messages", messages},
                          {"add_generation_prompt", false},
                          {"bos_token", text.bos_token},
                          {"eos_token", text.eos_token}};
  ASSIGN_OR_RETURN(const std::string rendered, text.chat_template->render(variables, 0));
  encode.parse_special = true;
  encode.add_special = false;
  return text.tokenizer->encode(rendered, encode);
}

Result<std::vector<TokenSequence>> chats(const TextAssets& text, std::string_view content) {
  std::vector<TokenSequence> sequences;
  int64_t number = 0;
  while (!content.empty()) {
    const std::string_view line = content.substr(0, content.find('\n'));
    content.remove_prefix(std::min(content.size(), line.size() + 1));
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const Json messages = messages_of(Json::parse(line, nullptr, /*allow_exceptions=*/false));
    if (messages.is_null())
      return invalid_argument(
          fmt::format("line {}: expected {{\"prompt\": \"…\", \"answer\": \"…\"}} or "
                      "{{\"messages\": [{{\"role\": \"…\", \"content\": \"…\"}}, …]}}",
                      number));
    auto ids = chat_ids(text, messages);
    if (!ids.ok()) return ids.status().in(fmt::format("line {}", number));
    sequences.push_back(std::move(*ids));
  }
  return sequences;
}

std::vector<TokenSequence> pieces(const TextAssets& text, std::string_view content) {
  EncodeOptions encode;
  encode.parse_special = false;
  const TokenSequence ids = text.tokenizer->encode(std::string(content), encode);
  // A short text gives as many pieces as it takes to hold one out.
  const size_t length = std::clamp<size_t>(ids.size() / kHeldOut, 1, kPieceTokens);
  std::vector<TokenSequence> sequences;
  for (size_t at = 0; at < ids.size(); at += length)
    sequences.emplace_back(ids.begin() + static_cast<int64_t>(at),
                           ids.begin() + static_cast<int64_t>(std::min(ids.size(), at + length)));
  return sequences;
}

int64_t count(const std::vector<TokenSequence>& sequences) {
  int64_t tokens = 0;
  for (const TokenSequence& sequence : sequences) tokens += static_cast<int64_t>(sequence.size());
  return tokens;
}

// Sequences of at most `most` tokens in all (the first one may have more), at even distances.
std::vector<TokenSequence> spread(std::vector<TokenSequence> sequences, int64_t most) {
  const int64_t all = count(sequences);
  if (all <= most) return sequences;
  std::vector<TokenSequence> taken;
  int64_t seen = 0, tokens = 0;
  for (TokenSequence& sequence : sequences) {
    const auto n = static_cast<int64_t>(sequence.size());
    const bool due = tokens * all <= seen * most;
    seen += n;
    if (!due || (!taken.empty() && tokens + n > most)) continue;
    tokens += n;
    taken.push_back(std::move(sequence));
  }
  return taken;
}

// What is fitted to and what is held out.
CalibrationSet divide(std::vector<TokenSequence> sequences) {
  CalibrationSet set;
  if (sequences.size() == 1) {
    const TokenSequence only = std::move(sequences[0]);
    const auto kept = only.begin() + static_cast<int64_t>(only.size() - only.size() / kHeldOut);
    sequences = {{only.begin(), kept}, {kept, only.end()}};
  }
  const size_t every = std::min(kHeldOut, sequences.size());
  for (size_t i = 0; i < sequences.size(); ++i) {
    TokenSequence& sequence = sequences[i];
    sequence.resize(std::min(sequence.size(), static_cast<size_t>(LayerWalk::kMaxTokens)));
    ((i + 1) % every == 0 ? set.held : set.fit).push_back(std::move(sequence));
  }
  return set;
}

}  // namespace

int64_t CalibrationSet::fit_tokens() const { return count(fit); }
int64_t CalibrationSet::held_tokens() const { return count(held); }

Result<CalibrationSet> read_calibration(const TextAssets& text, const std::string& path,
                                        std::string_view content, const CalibrationTokens& tokens) {
  if (content.size() > kMostBytes)
    return invalid_argument(fmt::format("{}: {} bytes of calibration text, at most {} are taken",
                                        path, content.size(), kMostBytes));
  if (!is_utf8(content)) return invalid_argument(fmt::format("{}: it is no text in UTF-8", path));
  const size_t first = content.find_first_not_of(" \t\r\n");
  std::vector<TokenSequence> sequences;
  if (first != std::string_view::npos && content[first] == '{') {
    auto read = chats(text, content);
    if (!read.ok()) return read.status().in(path);
    sequences = std::move(*read);
  } else {
    sequences = pieces(text, content);
  }
  std::erase_if(sequences, [](const TokenSequence& sequence) { return sequence.empty(); });
  const int64_t all = count(sequences);
  if (all < kLeastTokens)
    return invalid_argument(
        fmt::format("{}: {} tokens of calibration text; {} are the least to fit to and measure on, "
                    "some {} the usual",
                    path, all, kLeastTokens, tokens.fit + tokens.held));
  CalibrationSet set = divide(std::move(sequences));
  set.fit = spread(std::move(set.fit), tokens.fit);
  set.held = spread(std::move(set.held), tokens.held);
  if (all < tokens.fit)
    set.note = fmt::format(
        "{}: a short text: fitted to {} tokens, measured on {}; {} and as many to measure on are "
        "the usual",
        path, set.fit_tokens(), set.held_tokens(), tokens.fit);
  return set;
}

}  // namespace deltad
