// The keys under `variant_loading`, `variant_watch`, `variant_cache` and `queue`. Main thread.
#include "deltad/config.h"
#include "deltad/config_keys.h"

namespace deltad {

using namespace config_keys;

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
      {"host_memory", "auto, none or a size such as 64GiB",
       bytes_or_none([](Config& c) -> int64_t& { return c.router.host_bytes; }, kAutomaticBytes)},
      {"half_life_seconds", "a number of seconds above 0",
       positive_seconds([](Config& c) -> double& { return c.router.half_life_seconds; })},
      {"age_bound_seconds", "a number of seconds above 0",
       positive_seconds([](Config& c) -> double& { return c.router.age_bound_seconds; })},
  };
  return keys;
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

}  // namespace deltad
