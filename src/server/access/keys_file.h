// The file of API keys: YAML, a list of keys under `keys`, each with its hash, never the key
// itself, and what it may do (docs/security.md). Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "server/access/key_hash.h"

namespace deltad {

struct KeyRules {
  std::string name;                         // for logs; of one key only
  std::vector<std::string> models = {"*"};  // patterns of what /v1/models calls them, the base too
  bool admin = false;                       // opens the admin API too
  int64_t parallel_requests = 0;            // 0: as many as come
  double tokens_per_minute = 0;             // of prompts and answers; 0: as many as come
  std::optional<int64_t> expires;           // unix seconds: the first at which it is refused

  bool operator==(const KeyRules&) const = default;
};

struct KeyEntry {
  KeyHash hash{};
  KeyRules rules;
};

constexpr size_t kMostKeys = 10000;  // each request is compared with all of them

// kInvalidArgument: "FILE line N: what, and what is expected".
Result<std::vector<KeyEntry>> parse_keys(std::string_view yaml, const std::string& file);
// One entry of the list, as the file has it.
std::string key_line(const KeyEntry& entry);

// "2027-01-31" (its end, UTC) or "2027-01-31T12:00:00Z".
std::optional<int64_t> parse_expiry(std::string_view text);
std::string expiry_text(int64_t unix_seconds);

// Names of keys: 1 to 64 letters, digits and "._@/-", fit for a log line and a label.
bool is_key_name(std::string_view name);
// `*`: any characters, `?`: one; no other is special.
bool matches_pattern(std::string_view pattern, std::string_view name);

}  // namespace deltad
