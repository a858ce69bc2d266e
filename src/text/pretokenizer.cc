// PreTokenizer: see pretokenizer.h.
#include "text/pretokenizer.h"

#include <algorithm>

#include "text/unicode.h"
#include "text/utf8.h"

namespace deltad {
namespace {

using Kind = PreTokenizerStep::Kind;

constexpr std::string_view kByteLevelPattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

std::string literal(std::string_view text) {
  std::string pattern;
  for (char c : text) {
    if (std::string_view("\\^$.|?*+()[]{}").find(c) != std::string_view::npos) pattern += '\\';
    pattern += c;
  }
  return pattern;
}

// A stretch of text that matched, or one between two matches.
struct Piece {
  size_t begin, end;
  bool matched;
};

std::vector<Piece> with_gaps(std::string_view text, const std::vector<TextSpan>& matches,
                             bool invert) {
  std::vector<Piece> pieces;
  size_t done = 0;
  for (TextSpan match : matches) {
    if (done != match.begin) pieces.push_back({done, match.begin, invert});
    pieces.push_back({match.begin, match.end, !invert});
    done = match.end;
  }
  if (done != text.size()) pieces.push_back({done, text.size(), invert});
  return pieces;
}

// Joins neighbours as the behaviour says. An empty match counts as a match.
std::vector<Piece> joined(std::vector<Piece> pieces, SplitBehavior behavior) {
  std::vector<Piece> out;
  bool previous = false;  // whether the piece before (MergedWithNext: behind) matched
  switch (behavior) {
    case SplitBehavior::kContiguous:
      for (const Piece& piece : pieces) {
        if (!out.empty() && piece.matched == previous) {
          out.back().end = piece.end;
        } else {
          out.push_back(piece);
        }
        previous = piece.matched;
      }
      return out;
    case SplitBehavior::kMergedWithPrevious:
      for (const Piece& piece : pieces) {
        if (!out.empty() && piece.matched && !previous) {
          out.back().end = piece.end;
        } else {
          out.push_back(piece);
        }
        previous = piece.matched;
      }
      return out;
    case SplitBehavior::kMergedWithNext:
      std::reverse(pieces.begin(), pieces.end());
      for (const Piece& piece : pieces) {
        if (!out.empty() && piece.matched && !previous) {
          out.back().begin = piece.begin;
        } else {
          out.push_back(piece);
        }
        previous = piece.matched;
      }
      std::reverse(out.begin(), out.end());
      return out;
    case SplitBehavior::kRemoved:
      std::erase_if(pieces, [](const Piece& piece) { return piece.matched; });
      return pieces;
    case SplitBehavior::kIsolated:
      break;
  }
  return pieces;
}

void cut_digits(std::string_view text, bool individual, std::vector<std::string_view>& out) {
  size_t begin = 0;
  bool in_digits = false;
  for (size_t at = 0; at < text.size();) {
    size_t here = at;
    bool digit = is_numeric(next_char(text, at));
    if (here > begin && (digit != in_digits || (digit && individual))) {
      out.push_back(text.substr(begin, here - begin));
      begin = here;
    }
    in_digits = digit;
  }
  if (begin < text.size()) out.push_back(text.substr(begin));
}

}  // namespace

Result<PreTokenizer> PreTokenizer::make(std::vector<PreTokenizerStep> steps) {
  PreTokenizer made;
  for (PreTokenizerStep& step : steps) {
    if (made.byte_level()) return unimplemented("a pre-tokenizer behind ByteLevel");
    if (step.kind == Kind::kSplit && step.pattern.empty()) {
      return invalid_argument("a Split with an empty pattern");
    }
    std::string pattern = step.kind == Kind::kByteLevel ? std::string(kByteLevelPattern)
                          : step.is_literal             ? literal(step.pattern)
                                                        : step.pattern;
    SplitRegex regex;
    if (step.kind == Kind::kSplit || (step.kind == Kind::kByteLevel && step.use_regex)) {
      ASSIGN_OR_RETURN(regex, SplitRegex::compile(pattern));
    }
    made.regexes_.push_back(std::move(regex));
    made.steps_.push_back(std::move(step));
  }
  return made;
}

void PreTokenizer::cut(std::string_view text, Words& words) const {
  words.list.clear();
  words.owned.clear();
  if (text.empty()) return;
  words.list.push_back(text);
  for (size_t step = 0; step < steps_.size(); ++step) {
    words.next.clear();
    for (std::string_view piece : words.list) apply(step, piece, words);
    words.list.swap(words.next);
  }
}

void PreTokenizer::apply(size_t index, std::string_view text, Words& words) const {
  const PreTokenizerStep& step = steps_[index];
  std::vector<std::string_view>& out = words.next;
  if (step.kind == Kind::kDigits) return cut_digits(text, step.individual_digits, out);
  if (step.kind == Kind::kByteLevel && step.add_prefix_space && !text.starts_with(' ')) {
    text = words.owned.emplace_back(" ").append(text);
  }
  if (!regexes_[index].usable()) {
    out.push_back(text);
    return;
  }
  words.matches.clear();
  regexes_[index].find_all(text, words.matches);
  std::vector<Piece> pieces = with_gaps(text, words.matches, step.invert);
  if (step.kind == Kind::kSplit) pieces = joined(std::move(pieces), step.behavior);
  for (const Piece& piece : pieces) {
    if (piece.end > piece.begin) out.push_back(text.substr(piece.begin, piece.end - piece.begin));
  }
}

}  // namespace deltad
