#include "router/catalog.h"

#include <fmt/format.h>

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
  entry->share = std::make_shared<QueueShare>();
  if (source.limit.any()) entry->share->limiter.emplace(source.limit);
  return entry;
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
  const std::string name = entry->name;
  if (!entries_.emplace(name, std::move(entry)).second)
    return invalid_argument(fmt::format("variant '{}' is given twice", name));
  return Status();
}

Result<CatalogEntryRef> Catalog::replace(CatalogEntryRef entry) {
  const auto it = entries_.find(entry->name);
  if (it == entries_.end()) return unknown(entry->name);
  return std::exchange(it->second, std::move(entry));
}

Result<CatalogEntryRef> Catalog::remove(const std::string& name) {
  const auto it = entries_.find(name);
  if (it == entries_.end()) return unknown(name);
  CatalogEntryRef entry = std::move(it->second);
  entries_.erase(it);
  return entry;
}

CatalogEntryRef Catalog::find(const std::string& name) const {
  const auto it = entries_.find(name);
  return it == entries_.end() ? nullptr : it->second;
}

Status Catalog::unknown(const std::string& name) const {
  // The name is the client's text: shown short.
  std::string message =
      fmt::format("The model '{}' does not exist.", name.substr(0, kLongestVariantName));
  if (entries_.size() < kFewNames) {
    message += " Models: " + base_name_;
    for (const auto& [other, entry] : entries_) message += ", " + other;
    message += ".";
  }
  return not_found(message);
}

}  // namespace deltad
