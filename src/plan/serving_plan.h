// What a model, its variants and their requests need of a number of equal devices: what fits, how
// fast it can be at best, and where the first variant is evicted or the first request waits. The
// formulas are in docs/sizing.md. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "plan/devices.h"
#include "plan/memory_sizes.h"

namespace deltad {

struct PlanRequest {
  ModelConfig model;
  VariantShape variant;
  int64_t variants = 0;
  Devices devices;
  int64_t tensor_parallel = 0;  // GPUs that share one copy of the base; 0: all
  int64_t context = 4096;       // tokens of a request, prompt and answer
  int64_t concurrency = 32;     // requests that run at once, on all devices together
  int64_t step_rows = 256;
  double reserve = 0.1;       // share of a device's memory that is not planned with
  double storage_rate = 1e9;  // bytes a second, of one node
};

struct ServingPlan {
  int64_t tensor_parallel = 1, replicas = 1;
  // Bytes of one device.
  int64_t memory = 0, reserved = 0, base = 0, workspace = 0, variant = 0, variants = 0, kv = 0,
          left = 0;
  int64_t kv_block = 0, kv_blocks = 0;  // bytes; number, which all requests of a replica need
  int64_t resident = 0;  // variants that stay beside the KV blocks, at most those asked for
  int64_t running = 0;   // requests of a replica that run at once
  // With all requests running so many variants fit; the next one evicts. With all variants resident
  // so many requests run in all; the next one waits.
  int64_t variant_knee = 0, request_knee = 0;
  bool base_fits = false;  // with workspace and one request
  bool all_fits = false;   // also all variants and requests
  double base_load_seconds = 0, variant_load_seconds = 0;
  // A step that generates a token for each running request.
  int64_t base_read = 0, variants_read = 0, kv_read = 0;  // bytes of one device
  double step_seconds = 0, tokens_per_second = 0;         // tokens: of all replicas
  std::string bound_by;  // what takes most of the step: base, variants, KV or arithmetic
};

Result<ServingPlan> make_plan(const PlanRequest& request);

}  // namespace deltad
