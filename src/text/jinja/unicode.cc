#include "text/jinja/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstring>

#include "text/jinja/unicode_tables.h"

namespace deltad::jinja {

namespace {

utf8proc_category_t category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

bool in_ranges(const CodeRange* ranges, size_t count, char32_t c) {
  const CodeRange* end = ranges + count;
  const CodeRange* r =
      std::lower_bound(ranges, end, c, [](const CodeRange& a, char32_t b) { return a.last < b; });
  return r != end && r->first <= c;
}

const SpecialCase* special_case(char32_t c) {
  const SpecialCase* end = kSpecialCases + kSpecialCaseCount;
  const SpecialCase* s = std::lower_bound(
      kSpecialCases, end, c, [](const SpecialCase& a, char32_t b) { return a.code < b; });
  return s != end && s->code == c ? s : nullptr;
}

void append_upper(std::string* out, char32_t c) {
  if (c < 0x80) {
    out->push_back(c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : static_cast<char>(c));
  } else if (const SpecialCase* s = special_case(c)) {
    out->append(s->upper);
  } else {
    utf8_append(out, static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))));
  }
}

void append_title(std::string* out, char32_t c) {
  if (c < 0x80) {
    append_upper(out, c);
  } else if (const SpecialCase* s = special_case(c)) {
    out->append(s->title);
  } else {
    utf8_append(out, static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))));
  }
}

bool is_cased(char32_t c) { return is_lower(c) || is_upper(c) || is_title(c); }

bool is_case_ignorable(char32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return c == '\'' || c == '.' || c == ':' || c == 0xb7 || c == 0x387 || c == 0x55f ||
             c == 0x5f4 || c == 0x2018 || c == 0x2019 || c == 0x2024 || c == 0x2027 ||
             c == 0xfe13 || c == 0xfe52 || c == 0xfe55 || c == 0xff07 || c == 0xff0e || c == 0xff1a;
  }
}

// Whether the sigma that lies at [start, end) ends a word, and so is written ς in lower case.
bool final_sigma(std::string_view s, size_t start, size_t end) {
  bool before = false;
  for (size_t at = start; at > 0;) {
    const char32_t c = utf8_previous(s, &at);
    if (is_case_ignorable(c)) continue;
    before = is_cased(c);
    break;
  }
  if (!before) return false;
  for (size_t at = end; at < s.size();) {
    const char32_t c = utf8_next(s, &at);
    if (is_case_ignorable(c)) continue;
    return !is_cased(c);
  }
  return true;
}

void append_lower(std::string* out, std::string_view s, size_t start, size_t end, char32_t c) {
  constexpr char32_t kSigma = 0x3a3, kFinalSigma = 0x3c2, kDottedI = 0x130;
  if (c < 0x80) {
    out->push_back(c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : static_cast<char>(c));
  } else if (c == kSigma && final_sigma(s, start, end)) {
    utf8_append(out, kFinalSigma);
  } else if (c == kDottedI) {
    out->append("i\xcc\x87");
  } else {
    utf8_append(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
  }
}

bool is_line_break(char32_t c) {
  return (c >= 0x0a && c <= 0x0d) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

bool contains(std::string_view chars, char32_t c) {
  for (size_t at = 0; at < chars.size();) {
    if (utf8_next(chars, &at) == c) return true;
  }
  return false;
}

}  // namespace

bool utf8_valid(std::string_view s) {
  const auto* data = reinterpret_cast<const utf8proc_uint8_t*>(s.data());
  for (size_t at = 0; at < s.size();) {
    if (static_cast<unsigned char>(s[at]) < 0x80) {
      ++at;
      continue;
    }
    utf8proc_int32_t c;
    const auto n = utf8proc_iterate(data + at, static_cast<utf8proc_ssize_t>(s.size() - at), &c);
    if (n <= 0) return false;
    at += static_cast<size_t>(n);
  }
  return true;
}

size_t utf8_length(std::string_view s) {
  size_t n = 0;
  for (const char c : s) n += (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  return n;
}

void utf8_append(std::string* out, char32_t c) {
  utf8proc_uint8_t bytes[4];
  const auto n = utf8proc_encode_char(static_cast<utf8proc_int32_t>(c), bytes);
  out->append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(n));
}

char32_t utf8_next(std::string_view s, size_t* at) {
  const auto byte = [&](size_t i) {
    return i < s.size() ? static_cast<char32_t>(static_cast<unsigned char>(s[i])) & 0x3f : 0;
  };
  const size_t i = *at;
  const char32_t first = static_cast<unsigned char>(s[i]);
  if (first < 0x80) {
    *at = i + 1;
    return first;
  }
  if (first < 0xe0) {
    *at = std::min(i + 2, s.size());
    return (first & 0x1f) << 6 | byte(i + 1);
  }
  if (first < 0xf0) {
    *at = std::min(i + 3, s.size());
    return (first & 0x0f) << 12 | byte(i + 1) << 6 | byte(i + 2);
  }
  *at = std::min(i + 4, s.size());
  return (first & 0x07) << 18 | byte(i + 1) << 12 | byte(i + 2) << 6 | byte(i + 3);
}

char32_t utf8_previous(std::string_view s, size_t* at) {
  size_t start = *at - 1;
  while (start > 0 && (static_cast<unsigned char>(s[start]) & 0xc0) == 0x80) --start;
  *at = start;
  size_t end = start;
  return utf8_next(s, &end);
}

size_t utf8_offset(std::string_view s, size_t index) {
  size_t at = 0;
  for (; at < s.size(); ++at) {
    if ((static_cast<unsigned char>(s[at]) & 0xc0) != 0x80 && index-- == 0) return at;
  }
  return at;
}

bool is_space(char32_t c) {
  if (c < 0x80) return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20);
  return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
         c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

bool is_alpha(char32_t c) {
  const auto k = category(c);
  return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}

std::optional<int> decimal_value(char32_t c) {
  const char32_t* end = kDecimalZeros + kDecimalZeroCount;
  const char32_t* zero = std::upper_bound(kDecimalZeros, end, c);
  if (zero == kDecimalZeros) return std::nullopt;
  const char32_t value = c - *(zero - 1);
  if (value > 9) return std::nullopt;
  return static_cast<int>(value);
}

bool is_decimal(char32_t c) { return decimal_value(c).has_value(); }
bool is_digit(char32_t c) { return is_decimal(c) || in_ranges(kDigits, kDigitCount, c); }
bool is_numeric(char32_t c) { return is_decimal(c) || in_ranges(kNumerics, kNumericCount, c); }
bool is_alnum(char32_t c) { return is_alpha(c) || is_digit(c) || is_numeric(c); }
bool is_lower(char32_t c) { return utf8proc_islower(static_cast<utf8proc_int32_t>(c)) != 0; }
bool is_upper(char32_t c) { return utf8proc_isupper(static_cast<utf8proc_int32_t>(c)) != 0; }
bool is_title(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LT; }

bool is_mark(char32_t c) {
  const auto k = category(c);
  return k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_MC || k == UTF8PROC_CATEGORY_ME;
}

bool is_printable(char32_t c) {
  if (c < 0x80) return c >= 0x20 && c < 0x7f;
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
      return false;
    default:
      return true;
  }
}

std::string to_upper(std::string_view s) {
  std::string out;
  out.reserve(s.size());
  for (size_t at = 0; at < s.size();) append_upper(&out, utf8_next(s, &at));
  return out;
}

std::string to_lower(std::string_view s) {
  std::string out;
  out.reserve(s.size());
  for (size_t at = 0; at < s.size();) {
    const size_t start = at;
    const char32_t c = utf8_next(s, &at);
    append_lower(&out, s, start, at, c);
  }
  return out;
}

std::string to_casefold(std::string_view s) {
  std::string out;
  out.reserve(s.size());
  for (size_t at = 0; at < s.size();) {
    const char32_t c = utf8_next(s, &at);
    utf8proc_int32_t folded[8];
    int last_class = 0;
    const auto n = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), folded, 8,
                                           UTF8PROC_CASEFOLD, &last_class);
    for (utf8proc_ssize_t i = 0; i < n && i < 8; ++i) {
      utf8_append(&out, static_cast<char32_t>(folded[i]));
    }
  }
  return out;
}

std::string to_capitalized(std::string_view s) {
  std::string out;
  out.reserve(s.size());
  for (size_t at = 0; at < s.size();) {
    const size_t start = at;
    const char32_t c = utf8_next(s, &at);
    if (start == 0) {
      append_title(&out, c);
    } else {
      append_lower(&out, s, start, at, c);
    }
  }
  return out;
}

std::string to_title(std::string_view s) {
  std::string out;
  out.reserve(s.size());
  bool inside = false;
  for (size_t at = 0; at < s.size();) {
    const size_t start = at;
    const char32_t c = utf8_next(s, &at);
    if (inside) {
      append_lower(&out, s, start, at, c);
    } else {
      append_title(&out, c);
    }
    inside = is_cased(c);
  }
  return out;
}

std::string to_swapped(std::string_view s) {
  std::string out;
  out.reserve(s.size());
  for (size_t at = 0; at < s.size();) {
    const size_t start = at;
    const char32_t c = utf8_next(s, &at);
    if (is_upper(c)) {
      append_lower(&out, s, start, at, c);
    } else if (is_lower(c)) {
      append_upper(&out, c);
    } else {
      out.append(s.substr(start, at - start));
    }
  }
  return out;
}

std::string_view strip_left(std::string_view s) {
  size_t at = 0;
  while (at < s.size()) {
    size_t next = at;
    if (!is_space(utf8_next(s, &next))) break;
    at = next;
  }
  return s.substr(at);
}

std::string_view strip_right(std::string_view s) {
  size_t end = s.size();
  while (end > 0) {
    size_t start = end;
    if (!is_space(utf8_previous(s, &start))) break;
    end = start;
  }
  return s.substr(0, end);
}

std::string_view strip_left(std::string_view s, std::string_view chars) {
  size_t at = 0;
  while (at < s.size()) {
    size_t next = at;
    if (!contains(chars, utf8_next(s, &next))) break;
    at = next;
  }
  return s.substr(at);
}

std::string_view strip_right(std::string_view s, std::string_view chars) {
  size_t end = s.size();
  while (end > 0) {
    size_t start = end;
    if (!contains(chars, utf8_previous(s, &start))) break;
    end = start;
  }
  return s.substr(0, end);
}

std::vector<std::string_view> split_lines(std::string_view s, bool keep_ends) {
  std::vector<std::string_view> lines;
  size_t start = 0;
  for (size_t at = 0; at < s.size();) {
    const size_t end = at;
    const char32_t c = utf8_next(s, &at);
    if (!is_line_break(c)) continue;
    if (c == '\r' && at < s.size() && s[at] == '\n') ++at;
    lines.push_back(s.substr(start, (keep_ends ? at : end) - start));
    start = at;
  }
  if (start < s.size()) lines.push_back(s.substr(start));
  return lines;
}

std::vector<std::string_view> split_space(std::string_view s, long max) {
  std::vector<std::string_view> words;
  for (s = strip_left(s); !s.empty(); s = strip_left(s)) {
    if (max >= 0 && words.size() >= static_cast<size_t>(max)) {
      words.push_back(s);  // the rest, with the space at its end
      break;
    }
    size_t end = 0;
    while (end < s.size()) {
      size_t next = end;
      if (is_space(utf8_next(s, &next))) break;
      end = next;
    }
    words.push_back(s.substr(0, end));
    s.remove_prefix(end);
  }
  return words;
}

std::vector<std::string_view> split_space_right(std::string_view s, long max) {
  std::vector<std::string_view> words;
  for (s = strip_right(s); !s.empty(); s = strip_right(s)) {
    if (max >= 0 && words.size() >= static_cast<size_t>(max)) {
      words.push_back(s);
      break;
    }
    size_t start = s.size();
    while (start > 0) {
      size_t previous = start;
      if (is_space(utf8_previous(s, &previous))) break;
      start = previous;
    }
    words.push_back(s.substr(start));
    s = s.substr(0, start);
  }
  std::reverse(words.begin(), words.end());
  return words;
}

}  // namespace deltad::jinja
