#include "server/access/access.h"

#include <fmt/core.h>

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
    : options_(options),
      unix_now_(options.unix_now ? options.unix_now : deltad::unix_now),
      anybody_(nobody(*options.clock)),
      table_(std::make_shared<Table>()) {}

Result<std::unique_ptr<Access>> Access::make(const AccessOptions& options) {
  std::unique_ptr<Access> access(new Access(options));
  RETURN_IF_ERROR(access->reload());
  return access;
}

std::shared_ptr<const Access::Table> Access::table() const {
  MutexLock lock(mutex_);
  return table_;
}

bool Access::is_open(const Table& table, Need need) {
  if (need == Need::kNothing) return true;
  return need == Need::kAdmin ? table.admin_open : table.inference_open;
}

bool Access::open_for(Need need) const { return is_open(*table(), need); }

Result<std::shared_ptr<const Caller>> Access::identify(std::string_view key, Need need) const {
  const std::shared_ptr<const Table> table = this->table();
  if (is_open(*table, need)) return anybody_;
  const Status unknown = unauthenticated("The API key is missing or wrong.");
  if (key.empty()) return unknown;
  const KeyHash hash = hash_key(key);
  const Known* found = nullptr;
  for (const Known& known : table->keys)
    if (same_hash(known.hash, hash)) found = &known;
  if (found == nullptr) return unknown;
  const KeyRules& rules = found->caller->rules();
  if (rules.expires) {
    if (unix_now_() >= *rules.expires) return unauthenticated("The API key has expired.");
  }
  if (need == Need::kAdmin && !rules.admin)
    return permission_denied("This API key does not open the admin API.");
  if (need == Need::kInference && rules.models.empty())
    return permission_denied("This API key is for the admin API only.");
  return found->caller;
}

Status Access::reload() {
  MutexLock reloading(reload_);
  return read_keys();
}

Status Access::replace_keys(std::vector<std::string> api_keys,
                            std::vector<std::string> admin_api_keys) {
  MutexLock reloading(reload_);
  options_.api_keys.swap(api_keys);
  options_.admin_api_keys.swap(admin_api_keys);
  const Status status = read_keys();
  if (status.ok()) return status;
  options_.api_keys.swap(api_keys);
  options_.admin_api_keys.swap(admin_api_keys);
  return status;
}

Status Access::read_keys() {
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
  const bool listed = !options_.keys_file.empty();
  fresh->inference_open = !listed && options_.api_keys.empty();
  fresh->admin_open = !listed && options_.admin_api_keys.empty();
  for (KeyEntry& entry : entries) {
    Known known;
    known.hash = entry.hash;
    for (const Known& before : old->keys)
      if (before.caller->name() == entry.rules.name) known.use = before.use;
    if (known.use)
      known.use->set_rate(entry.rules.tokens_per_minute);
    else
      known.use = std::make_shared<KeyUse>(entry.rules.tokens_per_minute);
    known.caller =
        std::make_shared<const Caller>(std::move(entry.rules), known.use, *options_.clock);
    fresh->keys.push_back(std::move(known));
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
