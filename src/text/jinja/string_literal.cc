#include "text/jinja/string_literal.h"

#include <fmt/core.h>

#include "base/ascii.h"
#include "text/jinja/failure.h"
#include "text/jinja/unicode.h"

namespace deltad::jinja {

namespace {

bool is_high_surrogate(char32_t c) { return c >= 0xd800 && c < 0xdc00; }
bool is_surrogate(char32_t c) { return c >= 0xd800 && c < 0xe000; }

class Unescaper {
 public:
  Unescaper(std::string_view literal, int line) : s_(literal), line_(line) {}

  std::string run() {
    while (at_ < s_.size()) {
      if (s_[at_] == '\\' && at_ + 1 < s_.size()) {
        ++at_;
        escape();
      } else {
        out_.push_back(s_[at_++]);
      }
    }
    return std::move(out_);
  }

 private:
  void escape() {
    const char c = s_[at_++];
    switch (c) {
      case '\n':
        return;
      case '\\':
      case '\'':
      case '"':
        out_.push_back(c);
        return;
      case 'a':
        out_.push_back('\a');
        return;
      case 'b':
        out_.push_back('\b');
        return;
      case 'f':
        out_.push_back('\f');
        return;
      case 'n':
        out_.push_back('\n');
        return;
      case 'r':
        out_.push_back('\r');
        return;
      case 't':
        out_.push_back('\t');
        return;
      case 'v':
        out_.push_back('\v');
        return;
      case 'x':
        return append(hex(2, 'x'));
      case 'u':
        return append(hex(4, 'u'));
      case 'U':
        return append(hex(8, 'U'));
      case 'N':
        fail("named characters (\\N{…}) are not supported", line_);
      default:
        break;
    }
    if (c >= '0' && c <= '7') return octal(static_cast<char32_t>(c - '0'));
    out_.push_back('\\');  // not an escape: both characters stay
    if (static_cast<unsigned char>(c) < 0x80) {
      out_.push_back(c);
      return;
    }
    // Python has made an escape of the character before it looks at the backslash in front.
    --at_;
    const char32_t code = utf8_next(s_, &at_);
    const auto number = static_cast<uint32_t>(code);
    out_ += code < 0x100     ? fmt::format("x{:02x}", number)
            : code < 0x10000 ? fmt::format("u{:04x}", number)
                             : fmt::format("U{:08x}", number);
  }

  void octal(char32_t value) {
    for (int i = 0; i < 2 && at_ < s_.size() && s_[at_] >= '0' && s_[at_] <= '7'; ++i) {
      value = value * 8 + static_cast<char32_t>(s_[at_++] - '0');
    }
    append(value);
  }

  char32_t hex(int digits, char kind) {
    char32_t value = 0;
    for (int i = 0; i < digits; ++i) {
      const int d = at_ < s_.size() ? hex_digit(s_[at_]) : -1;
      if (d < 0)
        fail(fmt::format("truncated \\{}{} escape", kind, std::string(digits, 'X')), line_);
      value = value * 16 + static_cast<char32_t>(d);
      ++at_;
    }
    return value;
  }

  void append(char32_t c) {
    // A pair of surrogates is the one character that it stands for.
    if (is_high_surrogate(c) && s_.substr(at_, 2) == "\\u") {
      at_ += 2;
      const char32_t low = hex(4, 'u');
      if (is_surrogate(low) && !is_high_surrogate(low)) {
        c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
      }
    }
    if (is_surrogate(c)) fail("a string holds half of a surrogate pair", line_);
    if (c > 0x10ffff) fail("illegal Unicode character", line_);
    utf8_append(&out_, c);
  }

  const std::string_view s_;
  const int line_;
  size_t at_ = 0;
  std::string out_;
};

}  // namespace

std::string unescape(std::string_view literal, int line) { return Unescaper(literal, line).run(); }

}  // namespace deltad::jinja
