// The keys under `adapter_pool`. Main thread.
#include "deltad/config.h"
#include "deltad/config_keys.h"

namespace deltad {

using namespace config_keys;

namespace {

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

}  // namespace

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

}  // namespace deltad
