#include "deltad/config_diff.h"

#include <fmt/core.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>

#include "deltad/config.h"

namespace deltad {
namespace {

// With a dot at its end: all keys below it. docs/operations.md lists them, too.
constexpr std::string_view kChangeable[] = {
    "log",
    "log.",
    "tracing.ratio",
    "variants.",
    "server.api_keys",
    "server.admin.api_keys",
    "server.drain_seconds",
    "server.request_seconds",
    "queue.",
    "engine.base_weight",
    "engine.variant_weights.",
    "variant_loading.bytes_per_second",
    "variant_cache.memory",
};

bool changeable(std::string_view key) {
  for (const std::string_view known : kChangeable)
    if (key == known || (known.back() == '.' && key.substr(0, known.size()) == known)) return true;
  return false;
}

void add_keys(const YAML::Node& node, const std::string& path, ConfigKeys* keys) {
  if (node.IsMap()) {
    for (const auto& item : node)
      add_keys(item.second, (path.empty() ? "" : path + ".") + item.first.Scalar(), keys);
  } else if (node.IsSequence()) {
    std::string& text = (*keys)[path];
    for (const YAML::Node& item : node) text += fmt::format("[{}]", item.Scalar());
  } else if (node.IsScalar()) {
    (*keys)[path] = node.Scalar();
  }
}

std::vector<std::string> differing(const ConfigKeys& one, const ConfigKeys& other) {
  std::vector<std::string> out;
  for (const auto& [key, value] : one)
    if (const auto found = other.find(key); found == other.end() || found->second != value)
      out.push_back(key);
  for (const auto& [key, value] : other)
    if (one.count(key) == 0) out.push_back(key);
  return out;
}

const VariantSource* find(const std::vector<VariantSource>& variants, const std::string& name) {
  for (const VariantSource& variant : variants)
    if (variant.name == name) return &variant;
  return nullptr;
}

}  // namespace

ConfigKeys keys_of(const YAML::Node& root) {
  ConfigKeys keys;
  add_keys(root, "", &keys);
  return keys;
}

Result<ConfigDiff> diff(const Config& now, const Config& fresh) {
  ConfigDiff out;
  out.keys = differing(now.keys, fresh.keys);
  for (const std::string& key : out.keys)
    if (!changeable(key))
      return invalid_argument(
          fmt::format("key '{}' cannot change while the server runs: restart it for that", key));
  if (fresh.router.cache_bytes == 0 && now.router.cache_bytes != 0)
    return invalid_argument(
        "key 'variant_cache.memory' cannot become auto while the server runs: give a size, or "
        "restart it for that");
  for (const VariantSource& variant : fresh.variants) {
    const VariantSource* old = find(now.variants, variant.name);
    if (old == nullptr)
      out.added.push_back(variant);
    else if (old->path != variant.path)
      out.replaced.push_back(variant);
    if (old != nullptr && !(old->limit == variant.limit)) out.limited.push_back(variant);
    if (variant.pin && (old == nullptr || !old->pin)) out.pinned.push_back(variant);
    if (!variant.pin && old != nullptr && old->pin) out.unpinned.push_back(variant.name);
  }
  for (const VariantSource& variant : now.variants)
    if (find(fresh.variants, variant.name) == nullptr) out.removed.push_back(variant.name);
  return out;
}

}  // namespace deltad
