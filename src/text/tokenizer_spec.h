// TokenizerSpec: everything that makes a byte-level BPE tokenizer, read from tokenizer.json or from
// GGUF metadata, before the tables for encoding are built.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/pretokenizer.h"
#include "text/token_table.h"
#include "text/tokenizer.h"

namespace deltad {

// Ids from here on are taken for a broken file: tables by id would be huge.
constexpr int64_t kMaxTokenId = 1 << 22;
// The longest added token; looking for one costs its length at every place of a text.
constexpr size_t kMaxAddedToken = 4096;

struct TokenizerSpec {
  explicit TokenizerSpec(size_t ids) : vocabulary(ids) {}

  TokenTable vocabulary;  // as spelled in the file, without added tokens that it lacks
  size_t vocabulary_size = 0;
  std::vector<Merge> merges;      // best first
  BpeOptions bpe;                 // byte_level comes from the pre-tokenizer
  std::vector<AddedToken> added;  // filled by add_token
  std::unordered_map<std::string, size_t> added_by_content;
  int32_t highest_added = -1;
  bool nfc = false;
  std::vector<PreTokenizerStep> pre_tokenizer;
  std::vector<int32_t> prefix, suffix;  // what add_special puts around the text
};

// The merge of two tokens; kInvalidArgument if one of the three is not in the vocabulary.
Result<Merge> make_merge(const TokenTable& vocabulary, std::string_view left,
                         std::string_view right);

// The two tokens of "left right"; false if there is not exactly one space.
bool split_merge(std::string_view merge, std::string_view& left, std::string_view& right);

// Adds a token as the library does: the id is the vocabulary's if it has the content, else the next
// free one. The same content again replaces the flags.
Status add_token(TokenizerSpec& spec, AddedToken token);

Result<std::shared_ptr<const Tokenizer>> build_tokenizer(TokenizerSpec spec);

// As a tokenizer.json.
std::string to_tokenizer_json(const TokenizerSpec& spec);

}  // namespace deltad
