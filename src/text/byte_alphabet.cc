// The byte-level alphabet: see byte_alphabet.h.
#include "text/byte_alphabet.h"

#include <array>

#include "text/utf8.h"

namespace deltad {
namespace {

constexpr char32_t kFirstMoved = 0x100;  // bytes that are not printable are moved to here and on

struct Alphabet {
  std::array<char32_t, 256> of_byte{};
  std::array<int, 0x144> of_char{};

  Alphabet() {
    of_char.fill(-1);
    char32_t moved = kFirstMoved;
    for (int byte = 0; byte < 256; ++byte) {
      bool printable =
          (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xFF && byte != 0xAD);
      char32_t c = printable ? static_cast<char32_t>(byte) : moved++;
      of_byte[static_cast<size_t>(byte)] = c;
      of_char[c] = byte;
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet table;
  return table;
}

}  // namespace

int alphabet_byte(char32_t c) {
  const auto& table = alphabet().of_char;
  return c < table.size() ? table[c] : -1;
}

std::string to_alphabet(std::string_view bytes) {
  std::string out;
  for (char byte : bytes) append_char(out, alphabet().of_byte[static_cast<unsigned char>(byte)]);
  return out;
}

std::string from_alphabet(std::string_view token) {
  std::string bytes;
  for (size_t at = 0; at < token.size();) {
    int byte = alphabet_byte(next_char(token, at));
    if (byte < 0) return std::string(token);
    bytes += static_cast<char>(byte);
  }
  return bytes;
}

}  // namespace deltad
