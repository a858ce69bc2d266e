// ConfigKeys: what the sections of a config file are made of: a key, what is allowed for it, and
// how its value is read. Each section's keys are in the file named after it. Main thread.
#pragma once

#include <yaml-cpp/yaml.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/byte_count.h"
#include "base/clock.h"

namespace deltad {

struct Config;

namespace config_keys {

// Reads one value; false means that it is not what `expected` says.
using Setter = std::function<bool(const YAML::Node& value, Config& config)>;

struct Key {
  const char* name;
  const char* expected;
  Setter set;
};

inline std::optional<int64_t> integer(const YAML::Node& node, int64_t low, int64_t high) {
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
Setter bytes(Field field, const char* zero);

// A size, "none" for 0, or "auto" for the given value.
template <typename Field>
Setter bytes_or_none(Field field, int64_t automatic) {
  return [=](const YAML::Node& node, Config& config) {
    if (!node.IsScalar() || node.Scalar() != "auto") return bytes(field, "none")(node, config);
    field(config) = automatic;
    return true;
  };
}

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

}  // namespace config_keys

// The sections' keys. Kept for the whole run.
const std::vector<config_keys::Key>& server_keys();
const std::vector<config_keys::Key>& admin_keys();
const std::vector<config_keys::Key>& grpc_keys();
const std::vector<config_keys::Key>& tls_keys();
const std::vector<config_keys::Key>& admin_tls_keys();
const std::vector<config_keys::Key>& engine_keys();
const std::vector<config_keys::Key>& cpu_keys();
const std::vector<config_keys::Key>& variant_loading_keys();
const std::vector<config_keys::Key>& variant_watch_keys();
const std::vector<config_keys::Key>& variant_cache_keys();
const std::vector<config_keys::Key>& queue_keys();
const std::vector<config_keys::Key>& adapter_pool_keys();
const std::vector<config_keys::Key>& log_keys();
const std::vector<config_keys::Key>& tracing_keys();
// `log` as a word: the level.
bool set_log_word(const YAML::Node& node, Config& config);

}  // namespace deltad
