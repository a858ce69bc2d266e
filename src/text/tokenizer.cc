// Tokenizer: the parts of a byte-level BPE put together. Text goes through added tokens,
// normalizer, added tokens that are looked for in normalized text, pre-tokenizer and merges, in
// this order.
#include "text/tokenizer.h"

#include <fmt/core.h>

#include <algorithm>

#include "io/quote.h"
#include "text/byte_alphabet.h"
#include "text/tokenizer_spec.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace deltad {
namespace {

class BpeTokenizer final : public Tokenizer {
 public:
  BpeTokenizer(TokenTable texts, std::vector<bool> special, AddedTokens added, bool normalize,
               PreTokenizer pre_tokenizer, Bpe bpe, std::vector<int32_t> prefix,
               std::vector<int32_t> suffix)
      : texts_(std::move(texts)),
        special_(std::move(special)),
        added_(std::move(added)),
        normalize_(normalize),
        pre_tokenizer_(std::move(pre_tokenizer)),
        bpe_(std::move(bpe)),
        prefix_(std::move(prefix)),
        suffix_(std::move(suffix)) {}

  std::vector<int32_t> encode(std::string_view text, const EncodeOptions& options) const override {
    std::string repaired;
    if (!is_utf8(text)) {
      append_repaired(repaired, text);
      text = repaired;
    }
    std::vector<int32_t> ids;
    if (options.add_special) ids = prefix_;
    std::vector<TextPart> parts;
    PreTokenizer::Words words;
    added_.split(text, /*normalized=*/false, options.parse_special, parts);
    for (const TextPart& part : parts) {
      if (part.id >= 0) {
        ids.push_back(part.id);
      } else if (normalize_) {
        encode_text(nfc(part.text), options, words, ids);
      } else {
        encode_text(part.text, options, words, ids);
      }
    }
    if (options.add_special) ids.insert(ids.end(), suffix_.begin(), suffix_.end());
    return ids;
  }

  std::string decode(std::span<const int32_t> ids, bool skip_special) const override {
    std::string bytes;
    for (int32_t id : ids) {
      if (!skip_special || !is_special(id)) bytes += token_bytes(id);
    }
    std::string text;
    append_repaired(text, bytes);
    return text;
  }

  std::string token_bytes(int32_t id) const override { return from_alphabet(texts_.text(id)); }
  std::string token_text(int32_t id) const override { return std::string(texts_.text(id)); }
  int32_t token_id(std::string_view token) const override { return texts_.find(token); }
  bool is_special(int32_t id) const override {
    return id >= 0 && static_cast<size_t>(id) < special_.size() &&
           special_[static_cast<size_t>(id)];
  }
  int32_t vocab_size() const override { return static_cast<int32_t>(special_.size()); }

 private:
  // text: normalized, without the added tokens that are looked for before.
  void encode_text(std::string_view text, const EncodeOptions& options, PreTokenizer::Words& words,
                   std::vector<int32_t>& ids) const {
    if (!added_.any_normalized()) return encode_words(text, words, ids);
    std::vector<TextPart> parts;
    added_.split(text, /*normalized=*/true, options.parse_special, parts);
    for (const TextPart& part : parts) {
      if (part.id >= 0) {
        ids.push_back(part.id);
      } else {
        encode_words(part.text, words, ids);
      }
    }
  }

  void encode_words(std::string_view text, PreTokenizer::Words& words,
                    std::vector<int32_t>& ids) const {
    pre_tokenizer_.cut(text, words);
    for (std::string_view word : words.list) bpe_.encode(word, ids);
  }

  TokenTable texts_;           // every token as spelled
  std::vector<bool> special_;  // by id
  AddedTokens added_;
  bool normalize_;
  PreTokenizer pre_tokenizer_;
  Bpe bpe_;
  std::vector<int32_t> prefix_, suffix_;
};

// The vocabulary as words spell it: where words are bytes, each token's bytes.
TokenTable words_of(const TokenTable& vocabulary, bool byte_level) {
  TokenTable words(vocabulary.ids());
  for (size_t i = 0; i < vocabulary.ids(); ++i) {
    auto id = static_cast<int32_t>(i);
    if (!vocabulary.has(id)) continue;
    std::string_view text = vocabulary.text(id);
    std::string bytes = byte_level ? from_alphabet(text) : std::string(text);
    // A token from outside the alphabet is no word.
    if (!byte_level || to_alphabet(bytes) == text) words.add(bytes, id);
  }
  return words;
}

}  // namespace

Result<Merge> make_merge(const TokenTable& vocabulary, std::string_view left,
                         std::string_view right) {
  auto find = [&](std::string_view text) { return vocabulary.find(text); };
  std::string joined = fmt::format("{}{}", left, right);
  Merge merge{find(left), find(right), find(joined)};
  for (auto [id, text] : {std::pair<int32_t, std::string_view>{merge.left, left},
                          {merge.right, right},
                          {merge.joined, joined}}) {
    if (id < 0) return invalid_argument(quoted_name(text) + " is not in the vocabulary");
  }
  return merge;
}

bool split_merge(std::string_view merge, std::string_view& left, std::string_view& right) {
  size_t space = merge.find(' ');
  if (space == std::string_view::npos || merge.find(' ', space + 1) != std::string_view::npos) {
    return false;
  }
  left = merge.substr(0, space);
  right = merge.substr(space + 1);
  return true;
}

Status add_token(TokenizerSpec& spec, AddedToken token) {
  if (token.content.empty()) return {};  // can be found nowhere
  if (token.content.size() > kMaxAddedToken) {
    return invalid_argument(fmt::format("an added token of {} bytes, at most {} are allowed",
                                        token.content.size(), kMaxAddedToken));
  }
  auto [entry, is_new] = spec.added_by_content.emplace(token.content, spec.added.size());
  if (!is_new) {
    AddedToken& same = spec.added[entry->second];
    token.id = same.id;
    token.special |= same.special;
    same = std::move(token);
    return {};
  }
  token.id = spec.vocabulary.find(token.content);
  if (token.id < 0) {
    int64_t next = std::max<int64_t>(static_cast<int64_t>(spec.vocabulary_size),
                                     int64_t{spec.highest_added} + 1);
    if (next >= kMaxTokenId) return invalid_argument("too many tokens");
    token.id = static_cast<int32_t>(next);
  }
  spec.highest_added = std::max(spec.highest_added, token.id);
  spec.added.push_back(std::move(token));
  return {};
}

Result<std::shared_ptr<const Tokenizer>> build_tokenizer(TokenizerSpec spec) {
  ASSIGN_OR_RETURN(PreTokenizer pre_tokenizer, PreTokenizer::make(std::move(spec.pre_tokenizer)));
  spec.bpe.byte_level = pre_tokenizer.byte_level();
  std::vector<int32_t> alphabet;
  for (int byte = 0; byte < 256; ++byte) {
    char c = static_cast<char>(byte);
    alphabet.push_back(spec.vocabulary.find(to_alphabet({&c, 1})));
  }
  Bpe bpe(words_of(spec.vocabulary, spec.bpe.byte_level), spec.merges, std::move(alphabet),
          spec.bpe);

  size_t ids = spec.vocabulary.ids();
  for (const AddedToken& token : spec.added) ids = std::max(ids, static_cast<size_t>(token.id) + 1);
  TokenTable texts(ids);
  std::vector<bool> special(ids);
  std::vector<std::string> normalized;
  for (const AddedToken& token : spec.added) {
    texts.add(token.content, token.id);  // first: an id of both is spelled as the added token
    special[static_cast<size_t>(token.id)] = token.special;
    normalized.push_back(spec.nfc ? nfc(token.content) : token.content);
  }
  for (size_t i = 0; i < spec.vocabulary.ids(); ++i) {
    auto id = static_cast<int32_t>(i);
    if (spec.vocabulary.has(id)) texts.add(spec.vocabulary.text(id), id);
  }
  for (const std::vector<int32_t>* around : {&spec.prefix, &spec.suffix}) {
    for (int32_t id : *around) {
      if (texts.has(id)) continue;
      return invalid_argument(
          fmt::format("the post-processor adds the id {}, which no token has", id));
    }
  }
  return std::shared_ptr<const Tokenizer>(std::make_shared<BpeTokenizer>(
      std::move(texts), std::move(special), AddedTokens(std::move(spec.added), normalized),
      spec.nfc, std::move(pre_tokenizer), std::move(bpe), std::move(spec.prefix),
      std::move(spec.suffix)));
}

}  // namespace deltad
