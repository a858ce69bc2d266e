// A tokenizer from GGUF metadata: tokenizer.ggml.model "gpt2" (byte-level BPE), whose pre-tokenizer
// is only named (tokenizer.ggml.pre). The names known here become the steps of the tokenizers that
// they were converted from.
#include <fmt/core.h>

#include "io/gguf.h"
#include "io/quote.h"
#include "text/tokenizer_spec.h"
#include "text/utf8.h"

namespace deltad {
namespace {

// tokenizer.ggml.token_type
enum TokenType : int64_t { kUnknown = 2, kControl = 3, kUserDefined = 4 };

PreTokenizerStep split(std::string_view pattern) {
  PreTokenizerStep step;
  step.kind = PreTokenizerStep::Kind::kSplit;
  step.pattern = pattern;
  return step;
}

PreTokenizerStep digits() {
  PreTokenizerStep step;
  step.kind = PreTokenizerStep::Kind::kDigits;
  step.individual_digits = true;
  return step;
}

PreTokenizerStep byte_level(bool use_regex) {
  PreTokenizerStep step;
  step.use_regex = use_regex;
  return step;
}

constexpr std::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";

// What llama.cpp does for "default" and for files that name nothing.
std::vector<PreTokenizerStep> default_steps() {
  return {split(R"([\p{P}\$\+<=>\^~\|]+)"),
          split(R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S))"),
          split(R"(\p{N}+)"), split("[0-9][0-9][0-9]"), byte_level(false)};
}

std::string at(const GgufFile& file, std::string_view key) {
  return fmt::format("{}: {}", file.path(), key);
}

// Returns whether a begin token is added unless the file says otherwise.
Result<bool> set_pre_tokenizer(const GgufFile& file, std::string_view pre, TokenizerSpec& spec) {
  if (pre == "smollm") {
    spec.pre_tokenizer = {digits(), byte_level(true)};
  } else if (pre == "gpt-2" || pre == "phi-2") {
    spec.pre_tokenizer = {byte_level(true)};
  } else if (pre == "llama-bpe" || pre == "llama3" || pre == "llama-v3") {
    spec.pre_tokenizer = {split(kLlama3), byte_level(false)};
    spec.bpe.ignore_merges = true;
    return true;
  } else if (pre == "qwen2" || pre == "deepseek-r1-qwen") {
    spec.pre_tokenizer = {split(kQwen2), byte_level(false)};
    spec.nfc = true;
  } else if (pre == "default") {
    spec.pre_tokenizer = default_steps();
  } else {
    return unimplemented(
        fmt::format("{} {} is not supported", at(file, "tokenizer.ggml.pre"), quoted_name(pre)));
  }
  return false;
}

Result<bool> flag(const GgufFile& file, const std::string& key, bool absent) {
  auto entry = file.metadata().find(key);
  if (entry == file.metadata().end()) return absent;
  if (const bool* value = std::get_if<bool>(&entry->second)) return *value;
  return invalid_argument(fmt::format("{} is not a boolean", at(file, key)));
}

Status add_if_asked(const GgufFile& file, const std::string& asked, bool absent,
                    const std::string& key, const TokenizerSpec& spec, std::vector<int32_t>& ids) {
  ASSIGN_OR_RETURN(bool add, flag(file, asked, absent));
  if (!add || (absent && !file.has(key))) return {};
  ASSIGN_OR_RETURN(int64_t id, file.integer(key));
  if (id < 0 || id >= static_cast<int64_t>(spec.vocabulary.ids())) {
    return invalid_argument(
        fmt::format("{} is {}, of {} tokens", at(file, key), id, spec.vocabulary.ids()));
  }
  ids.push_back(static_cast<int32_t>(id));
  return {};
}

Status read_tokens(const GgufFile& file, const std::vector<std::string>& tokens,
                   TokenizerSpec& spec) {
  std::vector<int64_t> types;
  if (file.has("tokenizer.ggml.token_type")) {
    ASSIGN_OR_RETURN(types, file.integers("tokenizer.ggml.token_type"));
    if (types.size() != tokens.size()) {
      return invalid_argument(fmt::format("{} has {} entries for {} tokens",
                                          at(file, "tokenizer.ggml.token_type"), types.size(),
                                          tokens.size()));
    }
  }
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (!is_utf8(tokens[i])) {
      return invalid_argument(
          fmt::format("{}[{}] is not UTF-8", at(file, "tokenizer.ggml.tokens"), i));
    }
    auto id = static_cast<int32_t>(i);
    spec.vocabulary.add(tokens[i], id);
    if (types.empty() || spec.vocabulary.find(tokens[i]) != id) continue;
    if (types[i] != kControl && types[i] != kUnknown && types[i] != kUserDefined) continue;
    AddedToken added;
    added.content = tokens[i];
    added.special = types[i] != kUserDefined;
    Status status = add_token(spec, std::move(added));
    if (!status.ok()) return status.in(fmt::format("{}[{}]", at(file, "tokenizer.ggml.tokens"), i));
  }
  spec.vocabulary_size = tokens.size();
  return {};
}

Status read_merges(const GgufFile& file, TokenizerSpec& spec) {
  ASSIGN_OR_RETURN(std::vector<std::string> merges, file.strings("tokenizer.ggml.merges"));
  for (size_t i = 0; i < merges.size(); ++i) {
    std::string_view left, right;
    if (!split_merge(merges[i], left, right)) {
      return invalid_argument(
          fmt::format("{}[{}] is not a pair of tokens", at(file, "tokenizer.ggml.merges"), i));
    }
    auto merge = make_merge(spec.vocabulary, left, right);
    if (!merge.ok())
      return merge.status().in(fmt::format("{}[{}]", at(file, "tokenizer.ggml.merges"), i));
    spec.merges.push_back(*merge);
  }
  return {};
}

Result<TokenizerSpec> read_spec(const GgufFile& file) {
  ASSIGN_OR_RETURN(std::string model, file.string("tokenizer.ggml.model"));
  if (model != "gpt2") {
    return unimplemented(fmt::format("{} {} is not supported", at(file, "tokenizer.ggml.model"),
                                     quoted_name(model)));
  }
  ASSIGN_OR_RETURN(std::vector<std::string> tokens, file.strings("tokenizer.ggml.tokens"));
  if (static_cast<int64_t>(tokens.size()) > kMaxTokenId) {
    return invalid_argument(fmt::format("{} has {} tokens, at most {} are allowed",
                                        at(file, "tokenizer.ggml.tokens"), tokens.size(),
                                        kMaxTokenId));
  }
  TokenizerSpec spec(tokens.size());
  std::string pre = "default";
  if (file.has("tokenizer.ggml.pre")) {
    ASSIGN_OR_RETURN(pre, file.string("tokenizer.ggml.pre"));
  }
  ASSIGN_OR_RETURN(bool begins, set_pre_tokenizer(file, pre, spec));
  RETURN_IF_ERROR(read_tokens(file, tokens, spec));
  RETURN_IF_ERROR(read_merges(file, spec));
  RETURN_IF_ERROR(add_if_asked(file, "tokenizer.ggml.add_bos_token", begins,
                               "tokenizer.ggml.bos_token_id", spec, spec.prefix));
  RETURN_IF_ERROR(add_if_asked(file, "tokenizer.ggml.add_eos_token", false,
                               "tokenizer.ggml.eos_token_id", spec, spec.suffix));
  return spec;
}

}  // namespace

Result<std::shared_ptr<const Tokenizer>> Tokenizer::from_gguf(const GgufFile& file) {
  ASSIGN_OR_RETURN(TokenizerSpec spec, read_spec(file));
  return build_tokenizer(std::move(spec));
}

Result<std::string> gguf_tokenizer_json(const GgufFile& file) {
  ASSIGN_OR_RETURN(TokenizerSpec spec, read_spec(file));
  return to_tokenizer_json(spec);
}

}  // namespace deltad
