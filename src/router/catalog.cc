#include "router/catalog.h"

#include <fmt/core.h>

#include <ctime>
#include <utility>

#include "base/log.h"
#include "delta/variant_name.h"
#include "delta/variant_text.h"
#include "io/file_reader.h"
#include "io/quote.h"
#include "text/utf8.h"

namespace deltad {
namespace {

constexpr size_t kFewNames = 32;  // a 404 lists this many names at most

Status check_name(const std::string& name, const std::string& base_name) {
  RETURN_IF_ERROR(check_variant_name(name));
  if (name == base_name)
    return invalid_argument(
        fmt::format("variant '{}' has the name of the base model: choose another", name));
  return Status();
}

CatalogEntryRef new_entry(const VariantSource& source, std::shared_ptr<const TextAssets> text) {
  auto entry = std::make_shared<CatalogEntry>();
  entry->name = source.name;
  entry->path = source.path;
  entry->text = std::move(text);
  entry->created = static_cast<int64_t>(std::time(nullptr));
  entry->limit = source.limit;
  return entry;
}

std::shared_ptr<QueueShare> new_share(const VariantLimit& limit) {
  auto share = std::make_shared<QueueShare>();
  if (limit.any()) share->limiter.emplace(limit);
  return share;
}

}  // namespace

const char* variant_state_name(VariantState state) {
  switch (state) {
    case VariantState::kRegistered:
      return "registered";
    case VariantState::kLoading:
      return "loading";
    case VariantState::kResident:
      return "resident";
    case VariantState::kHost:
      return "host";
    case VariantState::kFailed:
      return "failed";
  }
  return "?";
}

Result<Catalog> Catalog::make(const std::string& base_name,
                              const std::vector<VariantSource>& sources,
                              const std::shared_ptr<const TextAssets>& base_text) {
  Catalog catalog(base_name);
  for (const VariantSource& source : sources) {
    ASSIGN_OR_RETURN(CatalogEntryRef entry, prepare(base_name, source, base_text));
    if (catalog.find(source.name) != nullptr)
      return invalid_argument(fmt::format("variant '{}' is given twice", source.name));
    RETURN_IF_ERROR(catalog.insert(std::move(entry)));
  }
  return catalog;
}

Result<CatalogEntryRef> Catalog::prepare(const std::string& base_name, const VariantSource& source,
                                         const std::shared_ptr<const TextAssets>& base_text) {
  RETURN_IF_ERROR(check_name(source.name, base_name));
  const std::string where = fmt::format("variant '{}'", source.name);
  if (!file_exists(source.path) && !is_directory(source.path))
    return invalid_argument(fmt::format("{}: '{}' does not exist", where, source.path));
  const Result<std::string> before = variant_text_digest(source.path);
  if (!before.ok()) return before.status().in(where);
  auto text = variant_text(source.path, base_text);
  if (!text.ok()) return text.status().in(where);
  const Result<std::string> after = variant_text_digest(source.path);
  if (!after.ok()) return after.status().in(where);
  if (*before != *after)
    return unavailable(
        fmt::format("{}: the text files of {} changed while they were read", where, source.path));
  CatalogEntryRef entry = new_entry(source, *text);
  entry->text_digest = *after;
  return entry;
}

Result<CatalogEntryRef> Catalog::prepare_configured(
    const std::string& base_name, const VariantSource& source,
    const std::shared_ptr<const TextAssets>& base_text) {
  RETURN_IF_ERROR(check_name(source.name, base_name));
  Result<CatalogEntryRef> prepared = prepare(base_name, source, base_text);
  if (prepared.ok()) return prepared;
  log_error("{}: it fails its requests until it is put right", prepared.status().message());
  CatalogEntryRef entry = new_entry(source, base_text);
  // A path that leads nowhere yet may lead somewhere later.
  if (file_exists(source.path) || is_directory(source.path))
    entry->broken = prepared.status();
  else if (const auto digest = variant_text_digest(source.path); digest.ok())
    entry->text_digest = *digest;
  return entry;
}

Status Catalog::insert(CatalogEntryRef entry) {
  if (entry->name.starts_with(kMemberPrefix))
    return invalid_argument(fmt::format(
        "variant '{}': names that begin with {} are those of the adapter pool's members",
        entry->name, kMemberPrefix));
  if (reserved_.count(entry->name) > 0)
    return conflict(
        fmt::format("the name '{}' is being given to an adapter of the pool", entry->name));
  if (names_.count(entry->name) > 0)
    return conflict(fmt::format("variant '{}' exists already: replace or remove it", entry->name));
  auto share = new_share(entry->limit);
  const std::string name = entry->name;
  names_.emplace(name, CatalogName{std::move(entry), std::move(share)});
  return Status();
}

Result<CatalogName*> Catalog::own(const std::string& name) {
  const auto it = names_.find(name);
  if (it == names_.end()) return unknown(name);
  if (it->second.entry->pooled)
    return conflict(
        fmt::format("'{}' is the adapter pool's: change the pool instead (deltactl pool)", name));
  return &it->second;
}

Result<CatalogEntryRef> Catalog::replace(CatalogEntryRef entry) {
  ASSIGN_OR_RETURN(CatalogName * at, own(entry->name));
  if (entry->limit.any()) at->share->limiter.emplace(entry->limit);
  return std::exchange(at->entry, std::move(entry));
}

Result<CatalogEntryRef> Catalog::remove(const std::string& name) {
  ASSIGN_OR_RETURN(CatalogName * at, own(name));
  CatalogEntryRef entry = std::move(at->entry);
  names_.erase(name);
  return entry;
}

Status Catalog::reserve(const std::string& name) {
  RETURN_IF_ERROR(check_name(name, base_name_));
  const auto it = names_.find(name);
  if (it != names_.end() && !it->second.entry->pooled)
    return conflict(fmt::format("a variant is called '{}': choose another name", name));
  reserved_.insert(name);
  return Status();
}

Result<std::map<std::string, CatalogEntryRef>> Catalog::publish(const PoolListing& listing) {
  std::map<std::string, CatalogEntryRef> fresh;
  const auto give = [&](const std::string& name, const CatalogEntryRef& entry) {
    RETURN_IF_ERROR(check_name(name, base_name_));
    const CatalogName* holder = find(name);
    if (holder != nullptr && !holder->entry->pooled)
      return conflict(
          fmt::format("the adapter pool cannot have the name '{}': a variant is called so", name));
    if (!fresh.emplace(name, entry).second)
      return invalid_argument(fmt::format("the adapter pool gives the name '{}' twice", name));
    return Status();
  };
  for (const CatalogEntryRef& member : listing.members) {
    const CatalogName* old = find(member->name);
    const bool same = old != nullptr && old->entry->pooled && old->entry->name == member->name &&
                      old->entry->path == member->path;
    RETURN_IF_ERROR(give(member->name, same ? old->entry : member));
  }
  const std::map<std::string, CatalogEntryRef> members = fresh;
  for (const auto& [name, member] : listing.names) {
    const auto at = members.find(member);
    if (at == members.end())
      return invalid_argument(
          fmt::format("adapter '{}' of the pool: there is no member '{}'", name, member));
    RETURN_IF_ERROR(give(name, at->second));
  }

  std::map<std::string, CatalogEntryRef> before;
  for (auto it = names_.begin(); it != names_.end();) {
    const bool pooled = it->second.entry->pooled;
    if (pooled) before.emplace(it->first, it->second.entry);
    it = pooled && fresh.count(it->first) == 0 ? names_.erase(it) : std::next(it);
  }
  for (const auto& [name, entry] : fresh) {
    entry->pooled = true;
    CatalogName& at = names_[name];
    if (!at.share) at.share = new_share({});
    at.entry = entry;
  }
  return before;
}

const CatalogName* Catalog::find(const std::string& name) const {
  const auto it = names_.find(name);
  return it == names_.end() ? nullptr : &it->second;
}

Status Catalog::unknown(const std::string& name) const {
  // The name is the client's text: shown short.
  std::string message =
      fmt::format("The model '{}' does not exist.", name.substr(0, kLongestVariantName));
  if (names_.size() < kFewNames) {
    message += " Models: " + base_name_;
    for (const auto& [other, named] : names_) message += ", " + other;
    message += ".";
  }
  return not_found(message);
}

}  // namespace deltad
