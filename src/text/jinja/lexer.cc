#include "text/jinja/lexer.h"

#include <algorithm>
#include <array>
#include <optional>

#include "text/jinja/number_text.h"
#include "text/jinja/string_literal.h"
#include "text/jinja/unicode.h"

namespace deltad::jinja {

namespace {

constexpr std::array<std::string_view, 7> kLongOperators = {"//", "**", "==", "!=", ">=", "<=", ""};
constexpr std::string_view kOperators = "+-/*%~[](){}><=.:|,;";

// \r\n and \r become \n; one newline at the end is dropped.
std::string normalized(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out.push_back(source[i]);
    } else {
      out.push_back('\n');
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

bool name_character(char32_t c) {
  return c == '_' || c == 0xb7 || (c < 0x80 ? is_alnum(c) : is_alnum(c) || is_mark(c));
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalized(source)) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) text();
    Token end;
    end.line = line_;
    tokens_.push_back(std::move(end));
    return std::move(tokens_);
  }

 private:
  bool starts(size_t at, std::string_view s) const { return source_.compare(at, s.size(), s) == 0; }
  char at(size_t i) const { return i < source_.size() ? source_[i] : '\0'; }

  size_t skip_space(size_t i) const {
    while (i < source_.size()) {
      size_t next = i;
      if (!is_space(utf8_next(source_, &next))) break;
      i = next;
    }
    return i;
  }

  void advance(size_t to) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<long>(at_),
                                         source_.begin() + static_cast<long>(to), '\n'));
    line_starting_ = to > at_ ? source_[to - 1] == '\n' : line_starting_;
    at_ = to;
  }

  void push(TokenKind kind, std::string text = "") {
    Token t;
    t.kind = kind;
    t.line = line_;
    t.text = std::move(text);
    tokens_.push_back(std::move(t));
  }

  // Text up to a tag, without the whitespace that the tag takes.
  void data(size_t end, char sign, bool may_strip) {
    std::string_view text(source_.data() + at_, end - at_);
    if (sign == '-') {
      text = strip_right(text);
    } else if (sign != '+' && may_strip) {
      const size_t line = text.rfind('\n') + 1;  // 0 where there is none
      if ((line > 0 || line_starting_) && strip(text.substr(line)).empty()) {
        text = text.substr(0, line);
      }
    }
    if (!text.empty()) push(TokenKind::kData, std::string(text));
    advance(end);
  }

  // The end of "{%- raw -%}", or 0 if the tag here is another.
  size_t raw_tag(size_t tag) const {
    size_t i = tag + 2;
    if (at(i) == '-' || at(i) == '+') ++i;
    i = skip_space(i);
    if (!starts(i, "raw")) return 0;
    i = skip_space(i + 3);
    if (starts(i, "-%}")) return skip_space(i + 3);
    return starts(i, "%}") ? i + 2 : 0;
  }

  void text() {
    size_t tag = at_;
    for (;; ++tag) {
      tag = source_.find('{', tag);
      if (tag == std::string::npos || tag + 1 >= source_.size()) {
        push(TokenKind::kData, source_.substr(at_));
        advance(source_.size());
        return;
      }
      const char c = source_[tag + 1];
      if (c == '%' || c == '{' || c == '#') break;
    }
    const char kind = source_[tag + 1];
    const char sign = at(tag + 2) == '-' || at(tag + 2) == '+' ? at(tag + 2) : '\0';
    const size_t raw = kind == '%' ? raw_tag(tag) : 0;
    data(tag, sign, kind != '{');
    if (raw != 0) {
      advance(raw);
      return raw_text();
    }
    const int line = line_;
    if (kind != '#') push(kind == '{' ? TokenKind::kVariableBegin : TokenKind::kBlockBegin);
    advance(tag + 2 + (sign != 0 ? 1 : 0));
    if (kind == '#') return comment(line);
    expression(kind == '{');
  }

  // Behind the end of a block tag: a newline there belongs to it.
  size_t block_end(size_t i) const { return at(i) == '\n' ? i + 1 : i; }

  void comment(int line) {
    const size_t end = source_.find("#}", at_);
    if (end == std::string::npos) fail("Missing end of comment tag", line);
    const char sign = end > at_ ? source_[end - 1] : '\0';
    advance(sign == '-' ? skip_space(end + 2) : sign == '+' ? end + 2 : block_end(end + 2));
  }

  void raw_text() {
    for (size_t tag = at_;; ++tag) {
      tag = source_.find("{%", tag);
      if (tag == std::string::npos) fail("Missing end of raw directive", line_);
      size_t i = tag + 2;
      const char sign = at(i) == '-' || at(i) == '+' ? at(i) : '\0';
      i = skip_space(sign != 0 ? i + 1 : i);
      if (!starts(i, "endraw")) continue;
      i = skip_space(i + 6);
      size_t end = 0;
      if (starts(i, "-%}")) {
        end = skip_space(i + 3);
      } else if (starts(i, "+%}")) {
        end = i + 3;
      } else if (starts(i, "%}")) {
        end = block_end(i + 2);
      } else {
        continue;
      }
      data(tag, sign, true);
      advance(end);
      return;
    }
  }

  // The inside of a tag, up to and with its end.
  void expression(bool variable) {
    const std::string_view close = variable ? "}}" : "%}";
    while (at_ < source_.size()) {
      if (brackets_.empty() && tag_end(variable, close)) return;
      token();
    }
  }

  bool tag_end(bool variable, std::string_view close) {
    size_t end = 0;
    if (at(at_) == '-' && starts(at_ + 1, close)) {
      end = skip_space(at_ + 3);
    } else if (!variable && at(at_) == '+' && starts(at_ + 1, close)) {
      end = at_ + 3;
    } else if (starts(at_, close)) {
      end = variable ? at_ + 2 : block_end(at_ + 2);
    } else {
      return false;
    }
    push(variable ? TokenKind::kVariableEnd : TokenKind::kBlockEnd);
    advance(end);
    return true;
  }

  void token() {
    if (const size_t end = skip_space(at_); end > at_) return advance(end);
    const char c = source_[at_];
    if (c >= '0' && c <= '9') return number();
    if (c == '\'' || c == '"') return string(c);
    size_t next = at_;
    if (name_character(utf8_next(source_, &next))) return name();
    op();
  }

  size_t digits(size_t i, const char* set) const {
    // At least one digit of the set, single underscores between them; i if there is none.
    const std::string_view allowed(set);
    const auto digit = [&](size_t k) {
      return k < source_.size() && allowed.find(source_[k]) != std::string_view::npos;
    };
    if (!digit(i)) return i;
    while (digit(i) || (at(i) == '_' && digit(i + 1))) ++i;
    return i;
  }

  size_t exponent(size_t i) const {
    if ((at(i) | 0x20) != 'e') return i;
    const size_t from = at(i + 1) == '+' || at(i + 1) == '-' ? i + 2 : i + 1;
    const size_t end = digits(from, kDecimal);
    return end > from ? end : i;
  }

  std::optional<size_t> float_end() const {
    if (at_ > 0 && source_[at_ - 1] == '.') return std::nullopt;
    const size_t whole = digits(at_, kDecimal);
    size_t end = whole;
    if (at(whole) == '.') end = digits(whole + 1, kDecimal);
    if (end == whole + 1 || at(whole) != '.') end = whole;
    const size_t full = exponent(end);
    if (full == whole) return std::nullopt;
    return full;
  }

  size_t integer_end() const {
    if (source_[at_] != '0') return digits(at_, kDecimal);
    const auto based = [&](const char* set) {
      const size_t from = at(at_ + 2) == '_' ? at_ + 3 : at_ + 2;
      const size_t end = digits(from, set);
      return end > from ? end : at_ + 1;
    };
    switch (at(at_ + 1) | 0x20) {
      case 'b':
        return based("01");
      case 'o':
        return based("01234567");
      case 'x':
        return based("0123456789abcdefABCDEF");
      default:
        return digits(at_, "0");
    }
  }

  void number() {
    if (const auto end = float_end()) {
      push(TokenKind::kFloat);
      tokens_.back().real = parse_float(source_.substr(at_, *end - at_)).value_or(0);
      return advance(*end);
    }
    const size_t end = integer_end();
    push(TokenKind::kInteger);
    try {
      tokens_.back().integer = parse_int(source_.substr(at_, end - at_), 0).value_or(0);
    } catch (Failure& f) {
      f.line = line_;
      throw;
    }
    advance(end);
  }

  void string(char quote) {
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) return unexpected();
    const std::string_view inside(source_.data() + at_ + 1, end - at_ - 1);
    push(TokenKind::kString, unescape(inside, line_));
    advance(end + 1);
  }

  void name() {
    size_t end = at_;
    bool first = true, valid = true;
    while (end < source_.size()) {
      size_t next = end;
      const char32_t c = utf8_next(source_, &next);
      if (!name_character(c)) break;
      if (c >= 0x80 && !is_alpha(c) && (first || !is_decimal(c)) && (first || !is_mark(c))) {
        valid = false;
      }
      first = false;
      end = next;
    }
    if (!valid) fail("Invalid character in identifier", line_);
    push(TokenKind::kName, source_.substr(at_, end - at_));
    advance(end);
  }

  void op() {
    for (const std::string_view o : kLongOperators) {
      if (!o.empty() && starts(at_, o)) {
        push(TokenKind::kOperator, std::string(o));
        return advance(at_ + 2);
      }
    }
    const char c = source_[at_];
    if (kOperators.find(c) == std::string_view::npos) return unexpected();
    balance(c);
    push(TokenKind::kOperator, std::string(1, c));
    advance(at_ + 1);
  }

  void balance(char c) {
    if (c == '(') brackets_.push_back(')');
    if (c == '[') brackets_.push_back(']');
    if (c == '{') brackets_.push_back('}');
    if (c != ')' && c != ']' && c != '}') return;
    if (brackets_.empty()) fail(fmt::format("unexpected '{}'", c), line_);
    const char expected = brackets_.back();
    brackets_.pop_back();
    if (expected != c) fail(fmt::format("unexpected '{}', expected '{}'", c, expected), line_);
  }

  void unexpected() {
    size_t next = at_;
    utf8_next(source_, &next);
    const std::string c = source_.substr(at_, next - at_);
    fail(fmt::format("unexpected char {}{}{} at {}", c == "'" ? '"' : '\'', c,
                     c == "'" ? '"' : '\'', utf8_length(source_.substr(0, at_))),
         line_);
  }

  static constexpr const char* kDecimal = "0123456789";

  const std::string source_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::string brackets_;  // what closes those that are open
  std::vector<Token> tokens_;
};

}  // namespace

std::string describe(TokenKind kind) {
  switch (kind) {
    case TokenKind::kData:
      return "template data / text";
    case TokenKind::kVariableBegin:
      return "begin of print statement";
    case TokenKind::kVariableEnd:
      return "end of print statement";
    case TokenKind::kBlockBegin:
      return "begin of statement block";
    case TokenKind::kBlockEnd:
      return "end of statement block";
    case TokenKind::kName:
      return "name";
    case TokenKind::kString:
      return "string";
    case TokenKind::kInteger:
      return "integer";
    case TokenKind::kFloat:
      return "float";
    case TokenKind::kOperator:
      return "operator";
    case TokenKind::kEnd:
      return "end of template";
  }
  return "";
}

std::string describe(const Token& token) {
  if (token.is(TokenKind::kName) || token.is(TokenKind::kOperator)) return token.text;
  return describe(token.kind);
}

std::vector<Token> tokenize(std::string_view source) {
  if (!utf8_valid(source)) fail("the template is not valid UTF-8", 1);
  return Lexer(source).run();
}

}  // namespace deltad::jinja
