#include "deltad/config.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "deltad/config_diff.h"
#include "deltad/config_keys.h"
#include "deltad/variants_config.h"
#include "io/yaml.h"

namespace deltad {
namespace {

using namespace config_keys;

class Reader {
 public:
  Reader(const std::string& file, Config* config) : file_(file), config_(*config) {}

  Status read(const YAML::Node& root) {
    std::vector<Key> admin = admin_keys();
    admin.push_back({"tls", "a map", nested("server.admin.tls", admin_tls_keys())});
    std::vector<Key> server = server_keys();
    server.push_back({"tls", "a map", nested("server.tls", tls_keys())});
    server.push_back({"admin", "a map", nested("server.admin", admin)});
    server.push_back({"grpc", "a map", nested("server.grpc", grpc_keys())});
    return section(
        root, "",
        {
            {"base", "the path of a model folder or .gguf file",
             text([](Config& c) -> std::string& { return c.base; })},
            {"base_name", "a name", text([](Config& c) -> std::string& { return c.base_name; })},
            {"variants", kVariantsExpected,
             [](const YAML::Node& node, Config& c) { return read_variants(node, &c.variants); }},
            {"server", "a map", nested("server", server)},
            {"device", "auto, cpu or cuda",
             [](const YAML::Node& node, Config& c) {
               return node.IsScalar() && parse_device(node.Scalar(), &c.device);
             }},
            {"engine", "a map", nested("engine", engine_keys())},
            {"cpu", "a map", nested("cpu", cpu_keys())},
            {"variant_watch", "a map", nested("variant_watch", variant_watch_keys())},
            {"variant_loading", "a map", nested("variant_loading", variant_loading_keys())},
            {"variant_cache", "a map", nested("variant_cache", variant_cache_keys())},
            {"queue", "a map", nested("queue", queue_keys())},
            {"adapter_pool", "a map", nested("adapter_pool", adapter_pool_keys())},
            {"tracing", "a map", nested("tracing", tracing_keys())},
            {"log", "debug, info, warning or error, or a map",
             [this](const YAML::Node& node, Config& c) {
               return node.IsMap() ? nested("log", log_keys())(node, c) : set_log_word(node, c);
             }},
        });
  }

 private:
  // A section's own error wins over "expected a map".
  Setter nested(const std::string& name, const std::vector<Key>& keys) {
    return [this, name, &keys](const YAML::Node& node, Config&) {
      if (!node.IsMap()) return false;
      inner_ = section(node, name + ".", keys);
      return inner_.ok();
    };
  }

  Status section(const YAML::Node& node, const std::string& prefix, const std::vector<Key>& keys) {
    if (node.IsNull()) return Status();
    if (!node.IsMap()) return at(node, "expected a map of keys");
    std::vector<std::string> seen;
    for (const auto& item : node) {
      if (!item.first.IsScalar()) return at(item.first, "a key must be a word");
      const std::string& name = item.first.Scalar();
      const Key* key = nullptr;
      std::string allowed;
      for (const Key& k : keys) {
        if (name == k.name) key = &k;
        allowed += (allowed.empty() ? "" : ", ") + std::string(k.name);
      }
      if (key == nullptr)
        return at(item.first,
                  fmt::format("unknown key '{}{}'; allowed are {}", prefix, name, allowed));
      for (const std::string& other : seen)
        if (other == name)
          return at(item.first, fmt::format("key '{}{}' is given twice", prefix, name));
      seen.push_back(name);
      if (!key->set(item.second, config_)) {
        if (!inner_.ok()) return inner_;
        return at(item.second, fmt::format("key '{}{}': expected {}", prefix, name, key->expected));
      }
    }
    return Status();
  }

  Status at(const YAML::Node& node, const std::string& what) const {
    return yaml_error(file_, node, what);
  }

  const std::string file_;
  Config& config_;
  Status inner_;
};

std::string beside(const std::string& file, const std::string& path) {
  if (path.empty() || path.front() == '/') return path;
  return (std::filesystem::path(file).parent_path() / path).lexically_normal().string();
}

}  // namespace

Status read_config(std::string_view yaml, const std::string& file, Config* config) {
  Config fresh = *config;
  fresh.variants.clear();
  RETURN_IF_ERROR(read_yaml(yaml, file, [&](const YAML::Node& root) -> Status {
    RETURN_IF_ERROR(Reader(file, &fresh).read(root));
    fresh.keys = keys_of(root);
    return {};
  }));
  for (const auto& [name, listen] :
       {std::pair{"server.admin.listen", fresh.admin_listen},
        std::pair{"server.grpc.admin_listen", fresh.grpc_admin_listen}})
    if (!listen.empty() && fresh.admin_api_keys.empty() && fresh.keys_file.empty() &&
        !is_loopback(listen))
      return invalid_argument(
          fmt::format("{}: key '{}': {} may be reached by others: give server.admin.api_keys or "
                      "server.keys_file",
                      file, name, listen));
  for (const std::string& key : fresh.admin_api_keys)
    if (std::find(fresh.api_keys.begin(), fresh.api_keys.end(), key) != fresh.api_keys.end())
      return invalid_argument(fmt::format(
          "{}: key 'server.admin.api_keys': a key of server.api_keys must not open it too", file));
  if (!(fresh.grpc_listen.empty() && fresh.grpc_admin_listen.empty()) &&
      fresh.grpc_memory < 2 * fresh.http.body_bytes)
    return invalid_argument(fmt::format(
        "{}: key 'server.grpc.memory': expected at least twice server.max_body, {} bytes", file,
        2 * fresh.http.body_bytes));
  if (!fresh.pool.folder.empty() && fresh.pool.pool.budget == 0)
    return invalid_argument(fmt::format(
        "{}: key 'adapter_pool.folder': give adapter_pool.budget too, a size such as 64MiB", file));
  if (fresh.pool.folder.empty() && fresh.pool.pool.budget > 0)
    return invalid_argument(fmt::format(
        "{}: key 'adapter_pool.budget': give adapter_pool.folder too, the path of a folder", file));
  for (const auto& [name, tls] :
       {std::pair{"server.tls", &fresh.tls}, std::pair{"server.admin.tls", &fresh.admin_tls}}) {
    if (tls->any() && (tls->certificate.empty() || tls->key.empty()))
      return invalid_argument(
          fmt::format("{}: key '{}': give both certificate and key", file, name));
    for (std::string* path : {&tls->certificate, &tls->key, &tls->client_ca})
      *path = beside(file, *path);
  }
  fresh.base = beside(file, fresh.base);
  for (VariantSource& variant : fresh.variants) variant.path = beside(file, variant.path);
  fresh.watch.folder = beside(file, fresh.watch.folder);
  fresh.pool.folder = beside(file, fresh.pool.folder);
  fresh.keys_file = beside(file, fresh.keys_file);
  *config = std::move(fresh);
  return Status();
}

Result<VariantSource> parse_variant(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size())
    return invalid_argument(fmt::format("--variant '{}': expected NAME=PATH", text));
  return VariantSource{text.substr(0, equals), text.substr(equals + 1)};
}

}  // namespace deltad
