// AddedTokens: see added_tokens.h.
#include "text/added_tokens.h"

#include <algorithm>

#include "base/check.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace deltad {
namespace {

// Where the white space that ends at `end` begins.
size_t skip_space_back(std::string_view text, size_t end) {
  while (end > 0) {
    size_t begin = previous_char(text, end);
    size_t at = begin;
    if (!is_white_space(next_char(text, at))) break;
    end = begin;
  }
  return end;
}

size_t skip_space(std::string_view text, size_t at) {
  while (at < text.size()) {
    size_t next = at;
    if (!is_white_space(next_char(text, next))) break;
    at = next;
  }
  return at;
}

bool word_before(std::string_view text, size_t end) {
  if (end == 0) return false;
  size_t at = previous_char(text, end);
  return is_word(next_char(text, at));
}

bool word_at(std::string_view text, size_t at) {
  return at < text.size() && is_word(next_char(text, at));
}

}  // namespace

void TokenFinder::add(std::string_view content, size_t token) {
  CHECK(!content.empty(), "an added token without content");
  uint32_t node = 0;
  for (char byte : content) {
    uint32_t next = child(node, byte);
    if (next == 0) {
      next = static_cast<uint32_t>(nodes_.size());
      nodes_.push_back({byte, 0, nodes_[node].child, -1});
      nodes_[node].child = next;
      if (node == 0) first_[static_cast<unsigned char>(byte)] = next;
    }
    node = next;
  }
  if (nodes_[node].token < 0) nodes_[node].token = static_cast<int32_t>(token);
}

uint32_t TokenFinder::child(uint32_t node, char byte) const {
  if (node == 0) return first_[static_cast<unsigned char>(byte)];
  uint32_t next = nodes_[node].child;
  while (next != 0 && nodes_[next].byte != byte) next = nodes_[next].sibling;
  return next;
}

bool TokenFinder::find(std::string_view text, size_t at, size_t& token, size_t& length) const {
  length = 0;
  uint32_t node = 0;
  for (size_t end = at; end < text.size();) {
    node = child(node, text[end]);
    if (node == 0) break;
    ++end;
    if (nodes_[node].token < 0) continue;
    token = static_cast<size_t>(nodes_[node].token);
    length = end - at;
  }
  return length != 0;
}

AddedTokens::AddedTokens(std::vector<AddedToken> tokens,
                         const std::vector<std::string>& normalized_contents)
    : tokens_(std::move(tokens)) {
  CHECK(normalized_contents.size() == tokens_.size(), "a content for each token");
  // Of equal contents the special one counts.
  for (bool special : {true, false}) {
    for (size_t i = 0; i < tokens_.size(); ++i) {
      const AddedToken& token = tokens_[i];
      if (token.special != special) continue;
      const std::string& content = token.normalized ? normalized_contents[i] : token.content;
      if (!content.empty()) (token.normalized ? normalized_ : plain_).add(content, i);
    }
  }
}

void AddedTokens::split(std::string_view text, bool normalized, bool parse_special,
                        std::vector<TextPart>& parts) const {
  const TokenFinder& finder = normalized ? normalized_ : plain_;
  size_t done = 0;  // text up to here is in parts
  size_t index, length;
  for (size_t at = 0; at < text.size() && !finder.empty();) {
    if (!finder.may_begin(text[at]) || !finder.find(text, at, index, length)) {
      ++at;
      continue;
    }
    // The search goes on behind the content in any case, as in the library: a token that does not
    // count hides what overlaps it, and one that took white space does not hide what is in there.
    size_t begin = at, end = at + length;
    at = end;
    const AddedToken& token = tokens_[index];
    if (token.special && !parse_special) continue;
    if (token.single_word && (word_before(text, begin) || word_at(text, end))) continue;
    if (token.lstrip) begin = std::max(skip_space_back(text, begin), done);
    if (token.rstrip) end = skip_space(text, end);
    if (done < begin) parts.push_back({text.substr(done, begin - done), -1});
    parts.push_back({text.substr(begin, end - begin), token.id});
    done = end;
  }
  if (done < text.size()) parts.push_back({text.substr(done), -1});
}

}  // namespace deltad
