#include "server/access/access.h"

#include <fmt/format.h>

#include <utility>

#include "base/ascii.h"
#include "base/log.h"
#include "io/file_reader.h"

namespace deltad {
namespace {

std::shared_ptr<const Caller> nobody(const Clock& clock) {
  KeyRules rules;
  rules.admin = true;  // asked only where no key is needed
  return std::make_shared<const Caller>(rules, std::make_shared<KeyUse>(0), clock);
}

KeyEntry inline_key(const std::string& key, std::string name, bool admin) {
  KeyEntry entry;
  entry.hash = hash_key(key);
  entry.rules.name = std::move(name);
  entry.rules.admin = admin;
  if (admin) entry.rules.models.clear();
  return entry;
}

}  // namespace

Access::Access(const AccessOptions& options)
    : options_(options), anybody_(nobody(*options.clock)), table_(std::make_shared<Table>()) {}

Result<std::unique_ptr<Access>> Access::make(const AccessOptions& options) {
  std::unique_ptr<Access> access(new Access(options));
  RETURN_IF_ERROR(access->reload());
  return access;
}

std::shared_ptr<const Access::Table> Access::table() const {
  MutexLock lock(mutex_);
  return table_;
}

bool Access::open_for(Need need) const {
  if (need == Need::kNothing) return true;
  if (!options_.keys_file.empty()) return false;
  return need == Need::kAdmin ? options_.admin_api_keys.empty() : options_.api_keys.empty();
}

Result<std::shared_ptr<const Caller>> Access::identify(std::string_view key, Need need) const {
  if (open_for(need)) return anybody_;
  const Status unknown = unauthenticated("The API key is missing or wrong.");
  if (key.empty()) return unknown;
  const KeyHash hash = hash_key(key);
  const Known* found = nullptr;
  const std::shared_ptr<const Table> table = this->table();
  for (const Known& known : *table)
    if (same_hash(known.hash, hash)) found = &known;
  if (found == nullptr) return unknown;
  const KeyRules& rules = found->caller->rules();
  if (rules.expires) {
    const int64_t now = options_.unix_now ? options_.unix_now() : unix_now();
    if (now >= *rules.expires) return unauthenticated("The API key has expired.");
  }
  if (need == Need::kAdmin && !rules.admin)
    return permission_denied("This API key does not open the admin API.");
  if (need == Need::kInference && rules.models.empty())
    return permission_denied("This API key is for the admin API only.");
  return found->caller;
}

Status Access::reload() {
  MutexLock reloading(reload_);
  std::vector<KeyEntry> entries;
  for (size_t i = 0; i < options_.api_keys.size(); ++i)
    entries.push_back(
        inline_key(options_.api_keys[i], fmt::format("server.api_keys.{}", i), false));
  for (size_t i = 0; i < options_.admin_api_keys.size(); ++i)
    entries.push_back(
        inline_key(options_.admin_api_keys[i], fmt::format("server.admin.api_keys.{}", i), true));
  if (!options_.keys_file.empty()) {
    ASSIGN_OR_RETURN(const std::string text, read_file(options_.keys_file));
    ASSIGN_OR_RETURN(std::vector<KeyEntry> listed, parse_keys(text, options_.keys_file));
    const size_t inline_keys = entries.size();
    for (KeyEntry& entry : listed) {
      for (size_t i = 0; i < inline_keys; ++i)
        if (same_hash(entries[i].hash, entry.hash) || entries[i].rules.name == entry.rules.name)
          return invalid_argument(fmt::format("{}: key '{}' is '{}' of the config already",
                                              options_.keys_file, entry.rules.name,
                                              entries[i].rules.name));
      entries.push_back(std::move(entry));
    }
  }
  const std::shared_ptr<const Table> old = table();
  auto fresh = std::make_shared<Table>();
  for (KeyEntry& entry : entries) {
    Known known;
    known.hash = entry.hash;
    for (const Known& before : *old)
      if (before.caller->name() == entry.rules.name) known.use = before.use;
    if (known.use)
      known.use->set_rate(entry.rules.tokens_per_minute);
    else
      known.use = std::make_shared<KeyUse>(entry.rules.tokens_per_minute);
    known.caller =
        std::make_shared<const Caller>(std::move(entry.rules), known.use, *options_.clock);
    fresh->push_back(std::move(known));
  }
  MutexLock lock(mutex_);
  table_ = std::move(fresh);
  return Status();
}

std::string_view bearer_key(std::string_view authorization) {
  static constexpr std::string_view kScheme = "bearer ";
  if (!same_ignoring_case(authorization.substr(0, kScheme.size()), kScheme)) return {};
  std::string_view key = authorization.substr(kScheme.size());
  while (!key.empty() && key.front() == ' ') key.remove_prefix(1);
  return key;
}

}  // namespace deltad
