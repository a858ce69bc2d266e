#include "deltad/config.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <optional>
#include <utility>

#include "base/byte_count.h"
#include "deltad/variants_config.h"

namespace deltad {
namespace {

// Reads one value; false means that it is not what `expected` says.
using Setter = std::function<bool(const YAML::Node& value, Config& config)>;

struct Key {
  const char* name;
  const char* expected;
  Setter set;
};

std::optional<int64_t> integer(const YAML::Node& node, int64_t low, int64_t high) {
  int64_t value = 0;
  if (!node.IsScalar() || !YAML::convert<int64_t>::decode(node, value) || value < low ||
      value > high)
    return std::nullopt;
  return value;
}

template <typename Field>
Setter whole(Field field, int64_t low, int64_t high) {
  return [=](const YAML::Node& node, Config& config) {
    const auto value = integer(node, low, high);
    using Number = std::remove_reference_t<decltype(field(config))>;
    if (value) field(config) = static_cast<Number>(*value);
    return value.has_value();
  };
}

template <typename Field>
Setter positive_seconds(Field field, double unit = 1.0) {
  return [=](const YAML::Node& node, Config& config) {
    double value = 0;
    if (!node.IsScalar() || !YAML::convert<double>::decode(node, value)) return false;
    if (!std::isfinite(value) || value <= 0 || value > 1e6) return false;
    value *= unit;
    using Target = std::remove_reference_t<decltype(field(config))>;
    if constexpr (std::is_same_v<Target, Duration>)
      field(config) = from_seconds(value);
    else
      field(config) = value;
    return true;
  };
}

// A number from low to 1.
template <typename Field>
Setter share(Field field, double low) {
  return [=](const YAML::Node& node, Config& config) {
    double value = 0;
    if (!node.IsScalar() || !YAML::convert<double>::decode(node, value)) return false;
    if (!(value >= low) || value > 1) return false;
    field(config) = value;
    return true;
  };
}

// One of the words that `parse` knows.
template <typename Parse, typename Field>
Setter word(Parse parse, Field field) {
  return [=](const YAML::Node& node, Config& config) {
    if (!node.IsScalar()) return false;
    const auto value = parse(node.Scalar());
    if (value.ok()) field(config) = *value;
    return value.ok();
  };
}

template <typename Field>
Setter text(Field field) {
  return [=](const YAML::Node& node, Config& config) {
    if (!node.IsScalar() || node.Scalar().empty()) return false;
    field(config) = node.Scalar();
    return true;
  };
}

template <typename Field>
Setter boolean(Field field) {
  return [=](const YAML::Node& node, Config& config) {
    bool value = false;
    if (!node.IsScalar() || !YAML::convert<bool>::decode(node, value)) return false;
    field(config) = value;
    return true;
  };
}

// zero: the word that stands for 0; "": none does.
template <typename Field>
Setter bytes(Field field, const char* zero) {
  return [=](const YAML::Node& node, Config& config) {
    if (!node.IsScalar()) return false;
    if (*zero != '\0' && node.Scalar() == zero) {
      field(config) = 0;
      return true;
    }
    const auto value = byte_count(node.Scalar());
    if (value)
      field(config) = static_cast<std::remove_reference_t<decltype(field(config))>>(*value);
    return value.has_value();
  };
}

bool set_log_level(const YAML::Node& node, Config& config) {
  if (!node.IsScalar()) return false;
  const std::string& name = node.Scalar();
  if (name == "debug")
    config.log_level = LogLevel::kDebug;
  else if (name == "info")
    config.log_level = LogLevel::kInfo;
  else if (name == "warning")
    config.log_level = LogLevel::kWarning;
  else if (name == "error")
    config.log_level = LogLevel::kError;
  else
    return false;
  return true;
}

bool set_listen(const YAML::Node& node, Config& config) {
  if (!node.IsScalar() || !check_listen(node.Scalar()).ok()) return false;
  config.http.listen = node.Scalar();
  return true;
}

template <typename Field>
Setter texts(Field field) {
  return [=](const YAML::Node& node, Config& config) {
    if (!node.IsSequence()) return false;
    std::vector<std::string> list;
    for (const YAML::Node& item : node) {
      if (!item.IsScalar() || item.Scalar().empty()) return false;
      list.push_back(item.Scalar());
    }
    field(config) = std::move(list);
    return true;
  };
}

// A port alone is one of this machine's.
bool set_admin_listen(const YAML::Node& node, Config& config) {
  if (!node.IsScalar()) return false;
  std::string listen = node.Scalar();
  if (listen.find(':') == std::string::npos) listen = "127.0.0.1:" + listen;
  if (!check_listen(listen).ok()) return false;
  config.admin_listen = std::move(listen);
  return true;
}

bool weight(const YAML::Node& node, double& out) {
  double value = 0;
  if (!node.IsScalar() || !YAML::convert<double>::decode(node, value)) return false;
  if (!(value >= 0.001) || value > 1000) return false;
  out = value;
  return true;
}

bool set_variant_weights(const YAML::Node& node, Config& config) {
  if (!node.IsMap()) return false;
  for (const auto& item : node)
    if (!item.first.IsScalar() ||
        !weight(item.second, config.engine.variant_weights[item.first.Scalar()]))
      return false;
  return true;
}

bool set_request_seconds(const YAML::Node& node, Config& config) {
  if (node.IsScalar() && node.Scalar() == "0") {
    config.request_seconds = 0;
    return true;
  }
  return positive_seconds([](Config& c) -> double& { return c.request_seconds; })(node, config);
}

const std::vector<Key>& server_keys() {
  static const std::vector<Key> keys = {
      {"listen", "ADDRESS:PORT", set_listen},
      {"io_threads", "a whole number from 1 to 64",
       whole([](Config& c) -> int& { return c.http.threads; }, 1, 64)},
      {"real_time_io", "true or false",
       boolean([](Config& c) -> bool& { return c.http.real_time; })},
      {"max_body", "a size such as 8MiB",
       bytes([](Config& c) -> size_t& { return c.http.body_bytes; }, "")},
      {"max_connections", "a whole number from 1 to 1000000",
       whole([](Config& c) -> size_t& { return c.http.connections; }, 1, 1000000)},
      {"header_seconds", "a number of seconds above 0",
       positive_seconds([](Config& c) -> Duration& { return c.http.header_timeout; })},
      {"idle_seconds", "a number of seconds above 0",
       positive_seconds([](Config& c) -> Duration& { return c.http.idle_timeout; })},
      {"drain_seconds", "a number of seconds above 0",
       positive_seconds([](Config& c) -> double& { return c.drain_seconds; })},
      {"request_seconds", "0 or a number of seconds", set_request_seconds},
      {"cors_origins", "a list of origins",
       texts([](Config& c) -> std::vector<std::string>& { return c.cors_origins; })},
      {"api_keys", "a list of keys",
       texts([](Config& c) -> std::vector<std::string>& { return c.api_keys; })},
  };
  return keys;
}

const std::vector<Key>& admin_keys() {
  static const std::vector<Key> keys = {
      {"listen", "PORT or ADDRESS:PORT", set_admin_listen},
      {"api_keys", "a list of keys",
       texts([](Config& c) -> std::vector<std::string>& { return c.admin_api_keys; })},
  };
  return keys;
}

const std::vector<Key>& engine_keys() {
  static const std::vector<Key> keys = {
      {"kv_cache", "auto or a size such as 2GiB",
       bytes([](Config& c) -> int64_t& { return c.engine.kv_bytes; }, "auto")},
      {"max_context", "0 or a whole number of tokens",
       whole([](Config& c) -> int32_t& { return c.engine.max_context; }, 0, 1 << 24)},
      {"max_step_rows", "a whole number from 16 to 8192",
       whole([](Config& c) -> int32_t& { return c.engine.max_step_rows; }, 16, 8192)},
      {"max_running", "a whole number from 1 to 65536",
       whole([](Config& c) -> int32_t& { return c.engine.max_running; }, 1, 65536)},
      {"max_waiting", "a whole number from 1 to 1000000",
       whole([](Config& c) -> int32_t& { return c.engine.max_waiting; }, 1, 1000000)},
      {"step_milliseconds", "a number above 0",
       positive_seconds([](Config& c) -> double& { return c.engine.step_seconds; }, 1e-3)},
      {"prefix_cache", "true or false",
       boolean([](Config& c) -> bool& { return c.engine.prefix_cache; })},
      {"age_seconds", "a number of seconds above 0",
       positive_seconds([](Config& c) -> double& { return c.engine.age_seconds; })},
      {"background_share", "a number from 0 to 1",
       share([](Config& c) -> double& { return c.engine.background_share; }, 0)},
      {"burst_tokens", "a whole number from 0 to 1000000000",
       whole([](Config& c) -> double& { return c.engine.burst_tokens; }, 0, 1000000000)},
      {"base_weight", "a number from 0.001 to 1000",
       [](const YAML::Node& node, Config& c) { return weight(node, c.engine.base_weight); }},
      {"variant_weights", "a map of NAME: a number from 0.001 to 1000", set_variant_weights},
  };
  return keys;
}

const std::vector<Key>& cpu_keys() {
  static const std::vector<Key> keys = {
      {"threads", "0 (one a core) or a whole number up to 1024",
       whole([](Config& c) -> int& { return c.cpu.threads; }, 0, 1024)},
      {"pin", "true or false", boolean([](Config& c) -> bool& { return c.cpu.pin; })},
      {"isa", "scalar, avx2, avx512 or avx512_bf16",
       [](const YAML::Node& node, Config& config) {
         if (!node.IsScalar()) return false;
         const std::string& isa = node.Scalar();
         config.cpu.isa = isa;
         return isa == "scalar" || isa == "avx2" || isa == "avx512" || isa == "avx512_bf16";
       }},
  };
  return keys;
}

const std::vector<Key>& variant_loading_keys() {
  static const std::vector<Key> keys = {
      {"threads", "a whole number from 1 to 64",
       whole([](Config& c) -> int& { return c.router.loader_threads; }, 1, 64)},
      {"retry_seconds", "a number of seconds above 0",
       positive_seconds([](Config& c) -> double& { return c.router.retry_seconds; })},
      {"bytes_per_second", "0 (no cap) or a size such as 200MiB",
       bytes([](Config& c) -> int64_t& { return c.router.bytes_per_second; }, "0")},
  };
  return keys;
}

const std::vector<Key>& variant_watch_keys() {
  static const std::vector<Key> keys = {
      {"folder", "the path of a folder",
       text([](Config& c) -> std::string& { return c.watch.folder; })},
      {"settle_seconds", "a number of seconds above 0",
       positive_seconds([](Config& c) -> Duration& { return c.watch.settle; })},
  };
  return keys;
}

const std::vector<Key>& variant_cache_keys() {
  static const std::vector<Key> keys = {
      {"memory", "auto or a size such as 2GiB",
       bytes([](Config& c) -> int64_t& { return c.router.cache_bytes; }, "auto")},
      {"half_life_seconds", "a number of seconds above 0",
       positive_seconds([](Config& c) -> double& { return c.router.half_life_seconds; })},
      {"age_bound_seconds", "a number of seconds above 0",
       positive_seconds([](Config& c) -> double& { return c.router.age_bound_seconds; })},
  };
  return keys;
}

// "auto" (0), or a whole number from 1 to 1000000.
template <typename Field>
Setter automatic_count(Field field) {
  const Setter number = whole(field, 1, 1000000);
  return [=](const YAML::Node& node, Config& config) {
    if (!node.IsScalar() || node.Scalar() != "auto") return number(node, config);
    field(config) = 0;
    return true;
  };
}

const std::vector<Key>& queue_keys() {
  static const std::vector<Key> keys = {
      {"max_requests", "auto or a whole number from 1 to 1000000",
       automatic_count([](Config& c) -> int64_t& { return c.router.max_waiting; })},
      {"max_requests_per_variant", "auto or a whole number from 1 to 1000000",
       automatic_count([](Config& c) -> int64_t& { return c.router.max_waiting_per_variant; })},
  };
  return keys;
}

// "off", or a similarity.
bool set_store_below(const YAML::Node& node, Config& config) {
  if (node.IsScalar() && node.Scalar() == "off") {
    config.pool.pool.store_below.reset();
    return true;
  }
  double value = 0;
  if (!node.IsScalar() || !YAML::convert<double>::decode(node, value)) return false;
  if (!(value >= -1) || value > 1) return false;
  config.pool.pool.store_below = value;
  return true;
}

const std::vector<Key>& adapter_pool_keys() {
  static const std::vector<Key> keys = {
      {"folder", "the path of a folder",
       text([](Config& c) -> std::string& { return c.pool.folder; })},
      {"budget", "a size such as 64MiB",
       bytes([](Config& c) -> int64_t& { return c.pool.pool.budget; }, "")},
      {"policy", "shrink-first or kmerge",
       word(parse_pool_policy, [](Config& c) -> PoolPolicy& { return c.pool.pool.policy; })},
      {"merge_by", "best, average or opcm",
       word(parse_pool_merge_by, [](Config& c) -> PoolMergeBy& { return c.pool.pool.merge_by; })},
      {"keep_share", "a number from 0 to 1",
       share([](Config& c) -> double& { return c.pool.pool.keep_share; }, 0)},
      {"store_below", "off or a number from -1 to 1", set_store_below},
      {"max_dropped_energy", "a number from 0 to 1",
       share([](Config& c) -> double& { return c.pool.pool.max_dropped_energy; }, 0)},
      {"opcm_share", "a number from 0 to 1",
       share([](Config& c) -> double& { return c.pool.pool.opcm_share; }, 0)},
      {"scoring_concurrency", "a whole number from 1 to 64",
       whole([](Config& c) -> int& { return c.pool.scoring.concurrency; }, 1, 64)},
      {"scoring_max_tokens", "a whole number from 1 to 4096",
       whole([](Config& c) -> int32_t& { return c.pool.scoring.max_tokens; }, 1, 4096)},
  };
  return keys;
}

class Reader {
 public:
  Reader(const std::string& file, Config* config) : file_(file), config_(*config) {}

  Status read(const YAML::Node& root) {
    std::vector<Key> server = server_keys();
    server.push_back({"admin", "a map", nested("server.admin", admin_keys())});
    return section(
        root, "",
        {
            {"base", "the path of a model folder or .gguf file",
             text([](Config& c) -> std::string& { return c.base; })},
            {"base_name", "a name", text([](Config& c) -> std::string& { return c.base_name; })},
            {"variants", kVariantsExpected,
             [](const YAML::Node& node, Config& c) { return read_variants(node, &c.variants); }},
            {"server", "a map", nested("server", server)},
            {"engine", "a map", nested("engine", engine_keys())},
            {"cpu", "a map", nested("cpu", cpu_keys())},
            {"variant_watch", "a map", nested("variant_watch", variant_watch_keys())},
            {"variant_loading", "a map", nested("variant_loading", variant_loading_keys())},
            {"variant_cache", "a map", nested("variant_cache", variant_cache_keys())},
            {"queue", "a map", nested("queue", queue_keys())},
            {"adapter_pool", "a map", nested("adapter_pool", adapter_pool_keys())},
            {"log", "debug, info, warning or error", set_log_level},
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
    const YAML::Mark mark = node.Mark();
    return invalid_argument(mark.is_null()
                                ? fmt::format("{}: {}", file_, what)
                                : fmt::format("{} line {}: {}", file_, mark.line + 1, what));
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
  try {
    RETURN_IF_ERROR(Reader(file, &fresh).read(YAML::Load(std::string(yaml))));
  } catch (const YAML::Exception& error) {
    return invalid_argument(
        fmt::format("{} line {}: not valid YAML: {}", file, error.mark.line + 1, error.msg));
  }
  if (!fresh.admin_listen.empty() && fresh.admin_api_keys.empty() &&
      !is_loopback(fresh.admin_listen))
    return invalid_argument(fmt::format(
        "{}: key 'server.admin.listen': {} may be reached by others: give server.admin.api_keys",
        file, fresh.admin_listen));
  for (const std::string& key : fresh.admin_api_keys)
    if (std::find(fresh.api_keys.begin(), fresh.api_keys.end(), key) != fresh.api_keys.end())
      return invalid_argument(fmt::format(
          "{}: key 'server.admin.api_keys': a key of server.api_keys must not open it too", file));
  if (!fresh.pool.folder.empty() && fresh.pool.pool.budget == 0)
    return invalid_argument(fmt::format(
        "{}: key 'adapter_pool.folder': give adapter_pool.budget too, a size such as 64MiB", file));
  if (fresh.pool.folder.empty() && fresh.pool.pool.budget > 0)
    return invalid_argument(fmt::format(
        "{}: key 'adapter_pool.budget': give adapter_pool.folder too, the path of a folder", file));
  fresh.base = beside(file, fresh.base);
  for (VariantSource& variant : fresh.variants) variant.path = beside(file, variant.path);
  fresh.watch.folder = beside(file, fresh.watch.folder);
  fresh.pool.folder = beside(file, fresh.pool.folder);
  *config = std::move(fresh);
  return Status();
}

Result<VariantSource> parse_variant(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size())
    return invalid_argument(fmt::format("--variant '{}': expected NAME=PATH", text));
  return VariantSource{text.substr(0, equals), text.substr(equals + 1)};
}

std::string describe(const Config& config) {
  const auto count_or = [](int64_t n, const char* zero) {
    return n == 0 ? std::string(zero) : std::to_string(n);
  };
  std::string out;
  out += fmt::format("base:      {}{}\n", config.base,
                     config.base_name.empty() ? "" : fmt::format(" as '{}'", config.base_name));
  for (const VariantSource& v : config.variants)
    out += fmt::format("variant:   {} = {}{}\n", v.name, v.path,
                       v.limit.any() ? ", with a rate limit" : "");
  if (!config.watch.folder.empty())
    out += fmt::format("watched:   {}, settle time {:g} s\n", config.watch.folder,
                       seconds(config.watch.settle));
  if (!config.pool.folder.empty())
    out += fmt::format("pool:      {}, {} bytes, {}, merges by {}, each keeps {:g} of its score\n",
                       config.pool.folder, config.pool.pool.budget,
                       pool_policy_name(config.pool.pool.policy),
                       pool_merge_by_name(config.pool.pool.merge_by), config.pool.pool.keep_share);
  out += fmt::format("listen:    {}, {} I/O threads, at most {} connections\n", config.http.listen,
                     config.http.threads, config.http.connections);
  if (!config.admin_listen.empty())
    out += fmt::format("admin:     {}, {}\n", config.admin_listen,
                       config.admin_api_keys.empty() ? "open" : "with a key");
  out += fmt::format("cpu:       threads {}, instruction set {}\n",
                     count_or(config.cpu.threads, "one a core"),
                     config.cpu.isa.empty() ? "the best there is" : config.cpu.isa);
  out += fmt::format(
      "engine:    KV cache {}, context {}, {} rows and {:.0f} ms a step, {} running, {} waiting\n",
      count_or(config.engine.kv_bytes, "auto"), count_or(config.engine.max_context, "the model's"),
      config.engine.max_step_rows, config.engine.step_seconds * 1e3, config.engine.max_running,
      config.engine.max_waiting);
  out += fmt::format(
      "variants:  memory {}, half-life {:g} s, age bound {:g} s; {} waiting, {} for one variant\n",
      count_or(config.router.cache_bytes, "auto"), config.router.half_life_seconds,
      config.router.age_bound_seconds, count_or(config.router.max_waiting, "auto"),
      count_or(config.router.max_waiting_per_variant, "auto"));
  return out;
}

}  // namespace deltad
