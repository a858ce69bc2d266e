// UTF-8: checking, repairing and walking text. Bytes that are not UTF-8 become U+FFFD, one for each
// maximal part that could have begun a character, as in Rust and Python. Pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace deltad {

// What stands at the beginning of some bytes: a character, or the longest part of one.
struct Utf8Unit {
  size_t length;   // at least 1
  bool valid;      // a whole character
  bool truncated;  // not whole, but the bytes end where it could go on
};
Utf8Unit utf8_unit(std::string_view bytes);  // bytes: not empty

bool is_utf8(std::string_view bytes);
// Appends bytes to out with U+FFFD for what is not UTF-8.
void append_repaired(std::string& out, std::string_view bytes);
// How many of the bytes are certain, whatever follows: all but the beginning of a character at the
// end.
size_t utf8_certain_prefix(std::string_view bytes);

// The character at text[at], which must be UTF-8 there; moves at behind it.
char32_t next_char(std::string_view text, size_t& at);
// Where the character that ends at `end` begins (end > 0, valid UTF-8).
size_t previous_char(std::string_view text, size_t end);
void append_char(std::string& out, char32_t c);

}  // namespace deltad
