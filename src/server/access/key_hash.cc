#include "server/access/key_hash.h"

#include <fmt/core.h>
#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <openssl/sha.h>

#include "base/ascii.h"

namespace deltad {
KeyHash hash_key(std::string_view key) {
  KeyHash hash;
  SHA256(reinterpret_cast<const unsigned char*>(key.data()), key.size(), hash.data());
  return hash;
}

bool same_hash(const KeyHash& a, const KeyHash& b) {
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string hash_text(const KeyHash& hash) {
  std::string text;
  for (const uint8_t byte : hash) text += fmt::format("{:02x}", byte);
  return text;
}

std::optional<KeyHash> parse_hash(std::string_view text) {
  KeyHash hash;
  if (text.size() != 2 * hash.size()) return std::nullopt;
  for (size_t i = 0; i < hash.size(); ++i) {
    const int high = hex_digit(text[2 * i]), low = hex_digit(text[2 * i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    hash[i] = static_cast<uint8_t>(16 * high + low);
  }
  return hash;
}

Result<std::string> new_key() {
  static constexpr char kLetters[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  // 6 bits a letter; 43 letters hold 258.
  unsigned char bytes[43];
  if (RAND_bytes(bytes, sizeof(bytes)) != 1)
    return internal_error("the system gives no random numbers");
  std::string key = "sk-";
  for (const unsigned char byte : bytes) key += kLetters[byte % 64];
  return key;
}

}  // namespace deltad
