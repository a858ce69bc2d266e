// The hashes of API keys: SHA-256 of the key as clients send it. Keys are random and long (256 bits
// by `deltactl key new`), so a plain hash is enough: there is nothing to guess. Any thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace deltad {

using KeyHash = std::array<uint8_t, 32>;

KeyHash hash_key(std::string_view key);
// Takes as long whatever differs.
bool same_hash(const KeyHash& a, const KeyHash& b);

std::string hash_text(const KeyHash& hash);                // 64 hex digits
std::optional<KeyHash> parse_hash(std::string_view text);  // of either case

// A new key from the system's random numbers: "sk-" and 43 letters and digits of base64url.
Result<std::string> new_key();

}  // namespace deltad
