// SplitRegex: a pre-tokenizer's regular expression, matched as Oniguruma (which the `tokenizers`
// library uses) matches it, through PCRE2 with JIT. Immutable; any number of threads may match at
// once.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

struct pcre2_real_code_8;

namespace deltad {

struct TextSpan {
  size_t begin, end;
};

class SplitRegex {
 public:
  // kInvalidArgument: not a regular expression; kUnimplemented: syntax whose meaning in Oniguruma
  // and PCRE2 differs and that is not translated.
  static Result<SplitRegex> compile(std::string_view pattern);

  bool usable() const { return code_ != nullptr; }  // false for one that was not compiled
  // Appends the matches from left to right; they do not overlap and may be empty. text is valid
  // UTF-8. An expression that backtracks without end stops matching: the matches until then stay.
  void find_all(std::string_view text, std::vector<TextSpan>& matches) const;

 private:
  struct Free {
    void operator()(pcre2_real_code_8* code) const;
  };
  std::unique_ptr<pcre2_real_code_8, Free> code_;
  bool jit_ = false;
};

// The same expression in PCRE2's syntax, with properties as Oniguruma has them.
Result<std::string> to_pcre2(std::string_view pattern);

}  // namespace deltad
