// A tokenizer and a chat template that tests can compute in their heads: token i < 256 is byte i;
// then come specials and a few longer tokens.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/text_assets.h"

namespace deltad::testing {

constexpr int32_t kEos = 256, kBos = 257;
constexpr int32_t kHello = 258;  // "Hello"
constexpr int32_t kWorld = 259;  // " world"
constexpr int32_t kVocab = 260;

class FakeTokenizer final : public Tokenizer {
 public:
  std::vector<int32_t> encode(std::string_view text, const EncodeOptions& options) const override {
    std::vector<int32_t> ids;
    if (options.add_special) ids.push_back(kBos);
    for (size_t i = 0; i < text.size();) {
      int32_t id = static_cast<unsigned char>(text[i]);
      for (int32_t longer = kEos; longer < kVocab; ++longer) {
        const std::string word = token_text(longer);
        if (is_special(longer) && !options.parse_special) continue;
        if (text.substr(i, word.size()) == word) id = longer;
      }
      ids.push_back(id);
      i += id < kEos ? 1 : token_text(id).size();
    }
    return ids;
  }

  std::string decode(std::span<const int32_t> ids, bool skip_special) const override {
    std::string bytes;
    for (const int32_t id : ids) {
      if (!(skip_special && is_special(id))) bytes += token_bytes(id);
    }
    return replace_invalid(bytes);
  }

  std::string token_bytes(int32_t id) const override {
    return id >= 0 && id < 256 ? std::string(1, static_cast<char>(id)) : token_text(id);
  }
  std::string token_text(int32_t id) const override {
    switch (id) {
      case kEos:
        return "<eos>";
      case kBos:
        return "<bos>";
      case kHello:
        return "Hello";
      case kWorld:
        return " world";
      default:
        return id >= 0 && id < 128 ? std::string(1, static_cast<char>(id)) : std::string();
    }
  }
  int32_t token_id(std::string_view) const override { return -1; }
  bool is_special(int32_t id) const override { return id == kEos || id == kBos; }
  int32_t vocab_size() const override { return kVocab; }

 private:
  // Only what the tests use: whole characters of up to three bytes; anything else is U+FFFD.
  static std::string replace_invalid(const std::string& bytes) {
    std::string out;
    for (size_t i = 0; i < bytes.size();) {
      const auto lead = static_cast<unsigned char>(bytes[i]);
      const size_t length = lead < 0x80                   ? 1
                            : lead >= 0xC2 && lead < 0xE0 ? 2
                            : (lead & 0xF0) == 0xE0       ? 3
                                                          : 0;
      bool whole = length > 0 && i + length <= bytes.size();
      for (size_t k = 1; whole && k < length; ++k) {
        whole = (static_cast<unsigned char>(bytes[i + k]) & 0xC0) == 0x80;
      }
      if (whole) {
        out += bytes.substr(i, length);
        i += length;
      } else {
        out += "\xEF\xBF\xBD";
        ++i;
      }
    }
    return out;
  }
};

// "<role>content" a line; "<assistant>" if asked for. Refuses content that is no string, and the
// word "forbidden", as templates with raise_exception do.
class FakeTemplate final : public ChatTemplate {
 public:
  Result<std::string> render(const nlohmann::ordered_json& variables, int64_t) const override {
    std::string out;
    if (variables.contains("prefix")) out += variables["prefix"].get<std::string>();
    for (const auto& message : variables["messages"]) {
      if (!message["content"].is_string()) return invalid_argument("line 2: content is not text");
      const auto& content = message["content"].get_ref<const std::string&>();
      if (content == "forbidden") return invalid_argument("line 7: forbidden content");
      out += "<" + message["role"].get<std::string>() + ">" + content;
      if (message.contains("tool_calls")) out += message["tool_calls"].dump();
      out += "\n";
    }
    if (variables["add_generation_prompt"].get<bool>()) out += "<assistant>";
    return out;
  }
};

inline std::shared_ptr<TextAssets> fake_text() {
  auto text = std::make_shared<TextAssets>();
  text->tokenizer = std::make_shared<FakeTokenizer>();
  text->chat_template = std::make_shared<FakeTemplate>();
  text->bos_token = "<bos>";
  text->eos_token = "<eos>";
  text->eos_ids = {kEos};
  return text;
}

}  // namespace deltad::testing
