// PreTokenizer: cuts text into the words that the merges work in. Immutable; any number of threads
// may cut at once.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/split_regex.h"

namespace deltad {

enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

// One step, as tokenizer.json has it.
struct PreTokenizerStep {
  enum class Kind { kDigits, kSplit, kByteLevel };
  Kind kind = Kind::kByteLevel;
  // Digits
  bool individual_digits = false;
  // Split
  std::string pattern;
  bool is_literal = false;  // the pattern is a string, not a regular expression
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;
  // ByteLevel: the last step, if there is one
  bool add_prefix_space = false;
  bool use_regex = true;
};

class PreTokenizer {
 public:
  static Result<PreTokenizer> make(std::vector<PreTokenizerStep> steps);

  // Whether the last step makes bytes of the characters.
  bool byte_level() const {
    return !steps_.empty() && steps_.back().kind == PreTokenizerStep::Kind::kByteLevel;
  }

  // Words in the order of the text; views of it or of `owned` (words that begin with a space that
  // the text does not have).
  struct Words {
    std::vector<std::string_view> list;
    std::deque<std::string> owned;
    // Room to work in, kept from text to text.
    std::vector<std::string_view> next;
    std::vector<TextSpan> matches;
  };
  // text: valid UTF-8. Replaces what words held.
  void cut(std::string_view text, Words& words) const;

 private:
  void apply(size_t step, std::string_view text, Words& words) const;  // to words.next

  std::vector<PreTokenizerStep> steps_;
  std::vector<SplitRegex> regexes_;  // of the step with the same index; empty where it needs none
};

}  // namespace deltad
