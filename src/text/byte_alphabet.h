// The byte-level alphabet: GPT-2's way to write any byte as a printable character (a space is "Ġ"),
// in which byte-level vocabularies spell their tokens.
#pragma once

#include <string>
#include <string_view>

namespace deltad {

// The byte that character c stands for, or -1.
int alphabet_byte(char32_t c);
std::string to_alphabet(std::string_view bytes);
// The bytes a token stands for. As in the `tokenizers` library, a token with a character from
// outside the alphabet (an added one, say "a b") stands for itself.
std::string from_alphabet(std::string_view token);

}  // namespace deltad
