// The keys under `engine` and `cpu`. Main thread.
#include "deltad/config.h"
#include "deltad/config_keys.h"
#include "parallel/shard_map.h"

namespace deltad {

using namespace config_keys;

namespace {

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
        !weight(item.second, config.engine.weights.variants[item.first.Scalar()]))
      return false;
  return true;
}

}  // namespace

const std::vector<Key>& engine_keys() {
  static const std::vector<Key> keys = {
      {"kv_cache", "auto or a size such as 2GiB",
       bytes([](Config& c) -> int64_t& { return c.engine.kv_bytes; }, "auto")},
      {"kv_host", "auto, none or a size such as 8GiB",
       bytes_or_none([](Config& c) -> int64_t& { return c.engine.kv_host_bytes; },
                     kAutomaticBytes)},
      {"tensor_parallel", "a whole number from 1 to 64",
       whole([](Config& c) -> int& { return c.tensor_parallel; }, 1, kMostRanks)},
      {"communicator", "auto, peer or nccl",
       [](const YAML::Node& node, Config& c) {
         return node.IsScalar() && parse_communicator(node.Scalar(), &c.communicator);
       }},
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
      {"stall_seconds", "a number of seconds above 0",
       positive_seconds([](Config& c) -> double& { return c.engine.stall_seconds; })},
      {"prefix_cache", "true or false",
       boolean([](Config& c) -> bool& { return c.engine.prefix_cache; })},
      {"age_seconds", "a number of seconds above 0",
       positive_seconds([](Config& c) -> double& { return c.engine.age_seconds; })},
      {"background_share", "a number from 0 to 1",
       share([](Config& c) -> double& { return c.engine.background_share; }, 0)},
      {"burst_tokens", "a whole number from 0 to 1000000000",
       whole([](Config& c) -> double& { return c.engine.burst_tokens; }, 0, 1000000000)},
      {"base_weight", "a number from 0.001 to 1000",
       [](const YAML::Node& node, Config& c) { return weight(node, c.engine.weights.base); }},
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

}  // namespace deltad
