// The keys `log` and those under `tracing`. Main thread.
#include "client/server_url.h"
#include "deltad/config.h"
#include "deltad/config_keys.h"

namespace deltad {

using namespace config_keys;

namespace {

bool set_level(const YAML::Node& node, Config& config) {
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

bool set_format(const YAML::Node& node, Config& config) {
  if (!node.IsScalar()) return false;
  config.log_format = node.Scalar() == "json" ? LogFormat::kJson : LogFormat::kPlain;
  return node.Scalar() == "json" || node.Scalar() == "plain";
}

bool set_endpoint(const YAML::Node& node, Config& config) {
  if (!node.IsScalar() || !client::parse_url(node.Scalar()).ok()) return false;
  config.tracing.endpoint = node.Scalar();
  return true;
}

}  // namespace

bool set_log_word(const YAML::Node& node, Config& config) { return set_level(node, config); }

const std::vector<Key>& log_keys() {
  static const std::vector<Key> keys = {
      {"level", "debug, info, warning or error", set_level},
      {"format", "plain or json", set_format},
  };
  return keys;
}

const std::vector<Key>& tracing_keys() {
  static const std::vector<Key> keys = {
      {"endpoint", "http[s]://HOST[:PORT]/PATH, such as http://127.0.0.1:4318/v1/traces",
       set_endpoint},
      {"ratio", "a number from 0 to 1",
       share([](Config& c) -> double& { return c.trace_ratio; }, 0)},
      {"service_name", "a name", text([](Config& c) -> std::string& { return c.tracing.service; })},
      {"queue", "a whole number of spans from 16 to 1000000",
       whole([](Config& c) -> size_t& { return c.tracing.queue; }, 16, 1000000)},
  };
  return keys;
}

}  // namespace deltad
