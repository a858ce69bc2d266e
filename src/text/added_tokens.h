// AddedTokens: tokens that are looked for in the text itself, before it is split into words:
// special ones ("<|im_end|>") and others. Immutable; any number of threads may split at once.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace deltad {

struct AddedToken {
  int32_t id = -1;
  std::string content;
  bool special = false;
  bool single_word = false;  // only where no letter or digit touches it
  bool lstrip = false;       // takes the white space in front
  bool rstrip = false;       // takes the white space behind
  bool normalized = false;   // is looked for in the normalized text
};

// A stretch of text, or the added token found there.
struct TextPart {
  std::string_view text;
  int32_t id = -1;  // -1: text
};

// Finds some tokens' contents in text: from left to right the longest at each place.
class TokenFinder {
 public:
  void add(std::string_view content, size_t token);  // not empty; the first of equals stays
  bool empty() const { return nodes_.size() == 1; }
  // The longest content that begins at text[at]: which token, how long. False if none.
  bool find(std::string_view text, size_t at, size_t& token, size_t& length) const;
  bool may_begin(char byte) const { return first_[static_cast<unsigned char>(byte)] != 0; }

 private:
  // A tree of bytes: children are a list, found through the eldest.
  struct Node {
    char byte = 0;
    uint32_t child = 0, sibling = 0;  // 0: none
    int32_t token = -1;
  };
  uint32_t child(uint32_t node, char byte) const;

  std::vector<Node> nodes_{1};
  uint32_t first_[256] = {};  // the root's children
};

class AddedTokens {
 public:
  // normalized_contents: what to look for instead of the content, for the tokens with `normalized`.
  AddedTokens(std::vector<AddedToken> tokens, const std::vector<std::string>& normalized_contents);

  const std::vector<AddedToken>& tokens() const { return tokens_; }
  bool any_normalized() const { return !normalized_.empty(); }

  // Appends text's parts in order. normalized: look for the tokens with `normalized`, or for the
  // others. Special tokens count as text unless parse_special.
  void split(std::string_view text, bool normalized, bool parse_special,
             std::vector<TextPart>& parts) const;

 private:
  std::vector<AddedToken> tokens_;
  TokenFinder plain_, normalized_;
};

}  // namespace deltad
