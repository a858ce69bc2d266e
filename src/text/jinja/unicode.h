// Text as Python sees it: code points of UTF-8 strings, their classes and their case mappings
// (full mappings: ß in upper case is SS). Pure functions over valid UTF-8.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace deltad::jinja {

bool utf8_valid(std::string_view s);
size_t utf8_length(std::string_view s);
void utf8_append(std::string* out, char32_t c);
// The code point at *at, which is moved behind it.
char32_t utf8_next(std::string_view s, size_t* at);
// The code point that ends at *at, which is moved to its start.
char32_t utf8_previous(std::string_view s, size_t* at);
// Byte offset of the code point with this index (s.size() for the one behind the last).
size_t utf8_offset(std::string_view s, size_t index);

bool is_space(char32_t c);
bool is_alpha(char32_t c);
bool is_decimal(char32_t c);
bool is_digit(char32_t c);
bool is_numeric(char32_t c);
bool is_alnum(char32_t c);
bool is_lower(char32_t c);
bool is_upper(char32_t c);
bool is_title(char32_t c);
bool is_mark(char32_t c);  // a combining mark
bool is_printable(char32_t c);
std::optional<int> decimal_value(char32_t c);

std::string to_upper(std::string_view s);
std::string to_lower(std::string_view s);
std::string to_casefold(std::string_view s);
std::string to_capitalized(std::string_view s);  // first in title case, the rest lower
std::string to_title(std::string_view s);        // str.title(): every run of cased characters
std::string to_swapped(std::string_view s);

std::string_view strip_left(std::string_view s);
std::string_view strip_right(std::string_view s);
inline std::string_view strip(std::string_view s) { return strip_left(strip_right(s)); }
// As above, for the characters in chars.
std::string_view strip_left(std::string_view s, std::string_view chars);
std::string_view strip_right(std::string_view s, std::string_view chars);

// str.splitlines(): lines end at any of Python's line boundaries.
std::vector<std::string_view> split_lines(std::string_view s, bool keep_ends);
// str.split() without a separator, at most max splits (negative: all).
std::vector<std::string_view> split_space(std::string_view s, long max);
std::vector<std::string_view> split_space_right(std::string_view s, long max);

}  // namespace deltad::jinja
