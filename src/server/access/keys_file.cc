#include "server/access/keys_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <set>
#include <utility>

#include "base/ascii.h"
#include "io/yaml.h"

namespace deltad {
namespace {

constexpr size_t kLongestName = 64, kLongestPattern = 256, kMostPatterns = 1000;

// Reads a value; false: it is not what was expected.
bool read_models(const YAML::Node& node, std::vector<std::string>* out) {
  if (!node.IsSequence() || node.size() > kMostPatterns) return false;
  out->clear();
  for (const YAML::Node& item : node) {
    if (!item.IsScalar() || item.Scalar().empty() || item.Scalar().size() > kLongestPattern)
      return false;
    out->push_back(item.Scalar());
  }
  return true;
}

bool read_expiry(const YAML::Node& node, std::optional<int64_t>* out) {
  if (node.IsScalar()) *out = parse_expiry(node.Scalar());
  return out->has_value();
}

struct Field {
  const char* name;
  const char* expected;
  bool (*read)(const YAML::Node& node, KeyEntry* entry);
};

const Field kFields[] = {
    {"name", "1 to 64 letters, digits and . _ @ / -",
     [](const YAML::Node& node, KeyEntry* e) {
       if (!node.IsScalar() || !is_key_name(node.Scalar())) return false;
       e->rules.name = node.Scalar();
       return true;
     }},
    {"sha256", "64 hex digits, as `deltactl key hash` prints them",
     [](const YAML::Node& node, KeyEntry* e) {
       const auto hash = node.IsScalar() ? parse_hash(node.Scalar()) : std::nullopt;
       if (hash) e->hash = *hash;
       return hash.has_value();
     }},
    {"models", "a list of at most 1000 names or patterns such as team/*",
     [](const YAML::Node& node, KeyEntry* e) { return read_models(node, &e->rules.models); }},
    {"admin", "true or false",
     [](const YAML::Node& node, KeyEntry* e) {
       return node.IsScalar() && YAML::convert<bool>::decode(node, e->rules.admin);
     }},
    {"parallel_requests", "a whole number from 1 to 1000000",
     [](const YAML::Node& node, KeyEntry* e) {
       int64_t& n = e->rules.parallel_requests;
       return node.IsScalar() && YAML::convert<int64_t>::decode(node, n) && n >= 1 && n <= 1000000;
     }},
    {"tokens_per_minute", "a number from 1 to 1e12",
     [](const YAML::Node& node, KeyEntry* e) {
       double& n = e->rules.tokens_per_minute;
       return node.IsScalar() && YAML::convert<double>::decode(node, n) && n >= 1 && n <= 1e12;
     }},
    {"expires", "a date such as 2027-01-31 or 2027-01-31T12:00:00Z",
     [](const YAML::Node& node, KeyEntry* e) { return read_expiry(node, &e->rules.expires); }},
};

class Reader {
 public:
  explicit Reader(const std::string& file) : file_(file) {}

  Status read(const YAML::Node& root, std::vector<KeyEntry>* out) {
    if (!root.IsMap() || root.size() != 1 || !root["keys"])
      return at(root, "expected one list `keys:` (it may be empty: [])");
    const YAML::Node list = root["keys"];
    if (!list.IsSequence()) return at(list, "`keys` must be a list");
    if (list.size() > kMostKeys)
      return at(list, fmt::format("{} keys; at most {} are possible", list.size(), kMostKeys));
    std::set<std::string> names;
    std::set<KeyHash> hashes;
    for (const YAML::Node& node : list) {
      KeyEntry entry;
      RETURN_IF_ERROR(read_entry(node, &entry));
      if (!names.insert(entry.rules.name).second)
        return at(node, fmt::format("two keys are named '{}'", entry.rules.name));
      if (!hashes.insert(entry.hash).second)
        return at(node, fmt::format("key '{}' has the hash of another", entry.rules.name));
      out->push_back(std::move(entry));
    }
    return Status();
  }

 private:
  Status read_entry(const YAML::Node& node, KeyEntry* entry) {
    if (!node.IsMap()) return at(node, "a key must be a map with name and sha256");
    std::set<std::string> seen;
    for (const auto& item : node) {
      const std::string name = item.first.IsScalar() ? item.first.Scalar() : "";
      const Field* field = std::find_if(std::begin(kFields), std::end(kFields),
                                        [&](const Field& f) { return name == f.name; });
      if (field == std::end(kFields))
        return at(item.first, "unknown field; allowed are " + all_fields());
      if (!seen.insert(name).second) return at(item.first, fmt::format("'{}' twice", name));
      if (!field->read(item.second, entry))
        return at(item.second, fmt::format("'{}': expected {}", name, field->expected));
    }
    for (const char* needed : {"name", "sha256"})
      if (!seen.contains(needed)) return at(node, fmt::format("a key without '{}'", needed));
    return Status();
  }

  static std::string all_fields() {
    std::string all;
    for (const Field& field : kFields) all += (all.empty() ? "" : ", ") + std::string(field.name);
    return all;
  }

  Status at(const YAML::Node& node, const std::string& what) const {
    return yaml_error(file_, node, what);
  }

  const std::string file_;
};

bool digits(std::string_view text, size_t at, size_t count, int* out) {
  *out = 0;
  for (size_t i = at; i < at + count; ++i) {
    if (i >= text.size() || text[i] < '0' || text[i] > '9') return false;
    *out = 10 * *out + (text[i] - '0');
  }
  return true;
}

// A scalar that YAML reads back as it is.
std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

}  // namespace

Result<std::vector<KeyEntry>> parse_keys(std::string_view yaml, const std::string& file) {
  std::vector<KeyEntry> entries;
  RETURN_IF_ERROR(read_yaml(
      yaml, file, [&](const YAML::Node& root) { return Reader(file).read(root, &entries); }));
  return entries;
}

std::string key_line(const KeyEntry& entry) {
  const KeyRules& rules = entry.rules;
  std::string out =
      fmt::format("  - {{name: {}, sha256: {}", quoted(rules.name), quoted(hash_text(entry.hash)));
  if (rules.models != std::vector<std::string>{"*"}) {
    std::string list;
    for (const std::string& model : rules.models)
      list += (list.empty() ? "" : ", ") + quoted(model);
    out += fmt::format(", models: [{}]", list);
  }
  if (rules.admin) out += ", admin: true";
  if (rules.parallel_requests > 0)
    out += fmt::format(", parallel_requests: {}", rules.parallel_requests);
  if (rules.tokens_per_minute > 0)
    out += fmt::format(", tokens_per_minute: {}", rules.tokens_per_minute);
  if (rules.expires) out += fmt::format(", expires: {}", quoted(expiry_text(*rules.expires)));
  return out + "}";
}

std::optional<int64_t> parse_expiry(std::string_view text) {
  int year = 0, month = 0, day = 0, hour = 0, minute = 0, second = 0;
  const bool whole_day = text.size() == 10;
  if (!whole_day && !(text.size() == 20 && text[10] == 'T' && text[13] == ':' && text[16] == ':' &&
                      text[19] == 'Z'))
    return std::nullopt;
  if (!digits(text, 0, 4, &year) || text[4] != '-' || !digits(text, 5, 2, &month) ||
      text[7] != '-' || !digits(text, 8, 2, &day))
    return std::nullopt;
  if (!whole_day && !(digits(text, 11, 2, &hour) && digits(text, 14, 2, &minute) &&
                      digits(text, 17, 2, &second) && hour < 24 && minute < 60 && second < 60))
    return std::nullopt;
  const std::chrono::year_month_day date{std::chrono::year(year),
                                         std::chrono::month(static_cast<unsigned>(month)),
                                         std::chrono::day(static_cast<unsigned>(day))};
  if (!date.ok()) return std::nullopt;
  const int64_t days = std::chrono::sys_days(date).time_since_epoch().count();
  if (whole_day) return (days + 1) * 86400;
  return days * 86400 + hour * 3600 + minute * 60 + second;
}

std::string expiry_text(int64_t unix_seconds) {
  const int64_t days = unix_seconds >= 0 ? unix_seconds / 86400 : (unix_seconds - 86399) / 86400;
  const int64_t rest = unix_seconds - days * 86400;
  const std::chrono::year_month_day date{std::chrono::sys_days(std::chrono::days(days))};
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", static_cast<int>(date.year()),
                     static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
                     rest / 3600, rest / 60 % 60, rest % 60);
}

bool is_key_name(std::string_view name) {
  return !name.empty() && name.size() <= kLongestName &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return is_ascii_alphanumeric(c) || c == '.' || c == '_' || c == '@' || c == '/' ||
                  c == '-';
         });
}

bool matches_pattern(std::string_view pattern, std::string_view name) {
  size_t p = 0, n = 0, star = std::string_view::npos, star_at = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      star_at = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++star_at;  // the star takes one character more
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace deltad
