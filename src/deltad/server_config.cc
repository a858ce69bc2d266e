// The keys under `server`. Main thread.
#include "deltad/config.h"
#include "deltad/config_keys.h"

namespace deltad {

using namespace config_keys;

namespace {

bool set_listen(const YAML::Node& node, Config& config) {
  if (!node.IsScalar() || !check_listen(node.Scalar()).ok()) return false;
  config.http.listen = node.Scalar();
  return true;
}

// A port alone is one of this machine's.
template <std::string Config::*Member>
bool set_other_listen(const YAML::Node& node, Config& config) {
  if (!node.IsScalar()) return false;
  std::string listen = node.Scalar();
  if (listen.find(':') == std::string::npos) listen = "127.0.0.1:" + listen;
  if (!check_listen(listen).ok()) return false;
  config.*Member = std::move(listen);
  return true;
}

bool set_request_seconds(const YAML::Node& node, Config& config) {
  if (node.IsScalar() && node.Scalar() == "0") {
    config.request_seconds = 0;
    return true;
  }
  return positive_seconds([](Config& c) -> double& { return c.request_seconds; })(node, config);
}

}  // namespace

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
      {"max_connections_per_address", "0 (no limit) or a whole number up to 1000000",
       whole([](Config& c) -> size_t& { return c.http.connections_per_address; }, 0, 1000000)},
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
      {"keys_file", "the path of a file of API keys",
       text([](Config& c) -> std::string& { return c.keys_file; })},
  };
  return keys;
}

const std::vector<Key>& admin_keys() {
  static const std::vector<Key> keys = {
      {"listen", "PORT or ADDRESS:PORT", set_other_listen<&Config::admin_listen>},
      {"api_keys", "a list of keys",
       texts([](Config& c) -> std::vector<std::string>& { return c.admin_api_keys; })},
  };
  return keys;
}

const std::vector<Key>& grpc_keys() {
  static const std::vector<Key> keys = {
      {"listen", "PORT or ADDRESS:PORT", set_other_listen<&Config::grpc_listen>},
      {"admin_listen", "PORT or ADDRESS:PORT", set_other_listen<&Config::grpc_admin_listen>},
      {"max_streams", "a whole number from 1 to 1000000",
       whole([](Config& c) -> int& { return c.grpc_streams; }, 1, 1000000)},
      {"memory", "a size such as 128MiB",
       bytes([](Config& c) -> size_t& { return c.grpc_memory; }, "")},
  };
  return keys;
}

}  // namespace deltad
