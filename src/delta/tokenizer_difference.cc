#include "delta/tokenizer_difference.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace deltad {
namespace {

// Each meets a rule that pre-tokenizers, normalizers or post-processors differ in.
constexpr const char* kProbes[] = {
    "",
    "Hello world",
    " leading and trailing ",
    "two  spaces,   three\n\nlines\r\n\ttab \n \n",
    "I'm, we'LL, they've, DON'T, it's",
    "1234567 3.14 1,000 x2 ²³ ½ ٣٤٥",
    "naïve café e\u0301 ﬁ Å \u212b",
    "Straße İstanbul ΑΣ ЖЩ",
    "日本語のテスト、中文。한국어",
    "नमस्ते ทดสอบ שלום مرحبا",
    "emoji 👩‍👩‍👧 🇪🇺 ❤️",
    "if (a[i] != b->c) { return &x; } // ok\n\n    indented",
    "http://example.com/?q=a%20b#c user@host <tag attr=\"v\">",
    "___ --- ... !!! ?!",
    "\u00a0nbsp\u2003em\u3000wide\u200bzero",
};

std::string quoted(const std::string& text) {
  return "'" + (text.size() > 40 ? text.substr(0, 40) + "…" : text) + "'";
}

// Fillers that converters add where a model has more rows than its tokenizer has tokens.
bool is_filler(const std::string& token) { return token.compare(0, 4, "[PAD") == 0; }

std::string encoding_difference(const Tokenizer& base, const Tokenizer& tuned,
                                const std::string& text) {
  for (const bool special : {false, true}) {
    EncodeOptions options;
    options.add_special = special;
    if (base.encode(text, options) != tuned.encode(text, options))
      return quoted(text) + " is encoded otherwise";
  }
  return "";
}

}  // namespace

std::string tokenizer_difference(const Tokenizer& base, const Tokenizer& tuned) {
  const int32_t ids = std::max(base.vocab_size(), tuned.vocab_size());
  for (int32_t id = 0; id < ids; ++id) {
    const std::string theirs = base.token_text(id), ours = tuned.token_text(id);
    if (ours.empty() && is_filler(theirs)) continue;
    if (ours != theirs)
      return fmt::format("token {} is {}, the base has {}", id, quoted(ours), quoted(theirs));
    if (base.is_special(id) != tuned.is_special(id))
      return fmt::format("token {} {} is {}special", id, quoted(ours),
                         tuned.is_special(id) ? "" : "not ");
    if (tuned.is_special(id)) {
      std::string difference = encoding_difference(base, tuned, "a " + ours + " b" + ours);
      if (!difference.empty()) return difference;
    }
  }
  for (const char* probe : kProbes) {
    std::string difference = encoding_difference(base, tuned, probe);
    if (!difference.empty()) return difference;
  }
  return "";
}

std::vector<std::string> merges_of(const std::string& tokenizer_json) {
  const auto document = nlohmann::json::parse(tokenizer_json, nullptr, false);
  std::vector<std::string> merges;
  if (!document.is_object()) return merges;
  const auto model = document.find("model");
  if (model == document.end() || !model->is_object()) return merges;
  const auto list = model->find("merges");
  if (list == model->end() || !list->is_array()) return merges;
  for (const auto& merge : *list) {
    if (merge.is_string()) {
      merges.push_back(merge.get<std::string>());
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
               merge[1].is_string()) {
      merges.push_back(merge[0].get<std::string>() + " " + merge[1].get<std::string>());
    }
  }
  return merges;
}

}  // namespace deltad
