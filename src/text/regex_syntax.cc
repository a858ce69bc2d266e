// Translates a regular expression from Oniguruma's syntax to PCRE2's. What both read alike passes,
// what they read differently is written out (\s, \w, \d, \v, general categories with the characters
// that PCRE2 does not know yet), and the rest is refused by name.
#include <fmt/core.h>

#include "io/quote.h"
#include "text/split_regex.h"
#include "text/unicode.h"

namespace deltad {
namespace {

// Insides of character classes. PCRE2's own \s has U+180E, its \w lacks marks and connectors.
constexpr std::string_view kSpace =
    R"(\x09-\x0d\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kNotSpace =
    R"(\x00-\x08\x0e-\x1f\x21-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027})"
    R"(\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff})";
constexpr std::string_view kWord =
    R"(\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{b2}\x{b3}\x{b9}\x{bc}-\x{be}\x{24b6}-\x{24e9})"
    R"(\x{1f130}-\x{1f149}\x{1f150}-\x{1f169}\x{1f170}-\x{1f189})";
constexpr std::string_view kNewerHan = R"(\x{2b739}\x{2ebf0}-\x{2ee5d}\x{31350}-\x{323af})";

class Translator {
 public:
  explicit Translator(std::string_view pattern) : pattern_(pattern) {}

  Result<std::string> run() {
    while (at_ < pattern_.size()) RETURN_IF_ERROR(in_class_ ? class_item() : item());
    if (in_class_) return bad("a character class without its ]");
    return std::move(out_);
  }

 private:
  bool follows(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }
  void copy(size_t count) {
    out_ += pattern_.substr(at_, count);
    at_ += count;
  }
  Status bad(std::string_view what) const {
    return invalid_argument(
        fmt::format("bad regular expression {}: {}", quoted_name(pattern_), what));
  }
  Status unsupported(std::string_view what) const {
    return unimplemented(fmt::format("regular expression {}: {} is not supported",
                                     quoted_name(pattern_), quoted_name(what)));
  }

  Status item() {
    switch (pattern_[at_]) {
      case '\\':
        return escape();
      case '[':
        in_class_ = true;
        copy(1);
        if (follows("^")) copy(1);
        if (follows("]")) return unsupported("] as the first of a class");
        return {};
      case '(':
        if (follows("(*")) return unsupported("(*");
        if (follows("(?")) {
          for (std::string_view kind : {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:"}) {
            if (follows(kind)) return copy(kind.size()), Status();
          }
          return unsupported(pattern_.substr(at_, 3));
        }
        break;
      case '{':
        if (follows("{,")) return unsupported("{,n}");
        break;
      case '}':
        if (follows("}+")) return unsupported("+ after {n}");
        break;
      default:
        break;
    }
    copy(1);
    return {};
  }

  Status class_item() {
    if (pattern_[at_] == '\\') return escape();
    if (follows("[")) return unsupported("[ inside a class");
    if (follows("&&")) return unsupported("&& inside a class");
    if (follows("]")) in_class_ = false;
    copy(1);
    return {};
  }

  // members or, outside a class, a class of them.
  void put_class(std::string_view members, bool negated) {
    out_ += in_class_ ? std::string(members) : fmt::format("[{}{}]", negated ? "^" : "", members);
  }

  Status escape() {
    if (at_ + 1 == pattern_.size()) return bad("\\ at the end");
    unsigned char c = static_cast<unsigned char>(pattern_[at_ + 1]);
    bool alphanumeric = (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z');
    if (!alphanumeric) return copy(2), Status();  // also the first byte of a longer character
    switch (c) {
      case 'r':
      case 'n':
      case 't':
      case 'f':
      case 'a':
      case 'e':
        return copy(2), Status();
      case 'A':
      case 'z':
        if (in_class_) break;
        return copy(2), Status();
      case 'v':
        at_ += 2;
        out_ += "\\x0b";
        return {};
      case 's':
        at_ += 2;
        put_class(kSpace, false);
        return {};
      case 'S':
        at_ += 2;
        put_class(kNotSpace, false);
        return {};
      case 'd':
        at_ += 2;
        put_class("\\p{Nd}" + newer_members("Nd"), false);
        return {};
      case 'w': {
        at_ += 2;
        std::string members(kWord);
        for (const char* category : {"L", "M", "Nd", "Nl", "Pc"}) {
          members += newer_members(category);
        }
        put_class(members, false);
        return {};
      }
      case 'u':
        return short_code_point();
      case 'x':
        return code_point();
      case 'p':
      case 'P':
        return property();
      default:
        break;
    }
    return unsupported(pattern_.substr(at_, 2));
  }

  // \x41 or \x{1F600}
  Status code_point() {
    if (follows("\\x{")) {
      size_t end = pattern_.find('}', at_);
      if (end == std::string_view::npos) return bad("\\x{ without }");
      copy(end + 1 - at_);
      return {};
    }
    // From 80 on it is a byte there and a character here.
    if (at_ + 3 >= pattern_.size() || pattern_[at_ + 2] > '7') {
      return unsupported(pattern_.substr(at_, 4));
    }
    copy(4);
    return {};
  }

  // \u30A0
  Status short_code_point() {
    std::string_view digits = pattern_.substr(at_ + 2, 4);
    if (digits.size() < 4 ||
        digits.find_first_not_of("0123456789abcdefABCDEF") != std::string_view::npos) {
      return bad("\\u without four digits");
    }
    out_ += fmt::format("\\x{{{}}}", digits);
    at_ += 6;
    return {};
  }

  // \p{L}, \P{L}, \p{^L}, \p{Han}
  Status property() {
    size_t end = pattern_.find('}', at_);
    if (!follows("\\p{") && !follows("\\P{")) return unsupported(pattern_.substr(at_, 3));
    if (end == std::string_view::npos) return bad("\\p{ without }");
    bool negated = pattern_[at_ + 1] == 'P';
    std::string_view name = pattern_.substr(at_ + 3, end - at_ - 3);
    if (name.starts_with('^')) {
      negated = !negated;
      name.remove_prefix(1);
    }
    bool category = name.size() <= 2;
    std::string property = category ? std::string(name) : fmt::format("sc:{}", name);
    at_ = end + 1;
    if (in_class_ && negated) {
      // Without the newer members: a class cannot leave out some characters only.
      out_ += fmt::format("\\P{{{}}}", property);
      return {};
    }
    std::string members = fmt::format("\\p{{{}}}", property);
    if (category) members += newer_members(name);
    if (name == "Han") members += kNewerHan;
    put_class(members, negated);
    return {};
  }

  std::string_view pattern_;
  size_t at_ = 0;
  bool in_class_ = false;
  std::string out_;
};

}  // namespace

Result<std::string> to_pcre2(std::string_view pattern) { return Translator(pattern).run(); }

}  // namespace deltad
