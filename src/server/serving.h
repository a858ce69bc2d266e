// Serving: what answers requests once the model is loaded. router, engine and pool outlive every
// request. Plain data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "router/router.h"
#include "server/pool/pool_service.h"

namespace deltad {

struct Serving {
  Router* router = nullptr;
  Engine* engine = nullptr;
  PoolService* pool = nullptr;        // null: no adapter pool
  std::string base_path;              // shown as `root`
  int64_t created = 0;                // unix seconds
  size_t base_bytes = 0;              // the base's weights, resident
  std::string device;                 // that runs the model, for people
  std::vector<std::string> backends;  // that this program has here, for people
  std::string config_digest;          // as config_digest() says
  double request_seconds = 0;         // that a request may take; 0: no bound
};

}  // namespace deltad
