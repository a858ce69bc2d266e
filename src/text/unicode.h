// Unicode properties as the `tokenizers` library sees them (Unicode 16 in its regular expressions;
// ours come from libraries that may know Unicode 14 only, so newer characters are in a table here).
// Pure functions.
#pragma once

#include <string>
#include <string_view>

namespace deltad {

bool is_white_space(char32_t c);  // White_Space: \s of its regular expressions
bool is_numeric(char32_t c);      // N, what Digits splits at
bool is_word(char32_t c);         // \w of an added token's single_word

// Members of a general category ("L", "Nd") that PCRE2 may not know yet, as the inside of a
// character class; "" if none.
std::string newer_members(std::string_view category);

// Canonical composition (NFC) of valid UTF-8. Linear time, whatever the text.
std::string nfc(std::string_view text);

}  // namespace deltad
