#include "plan/serving_plan.h"

#include <fmt/core.h>

#include <algorithm>

namespace deltad {
namespace {

Status check(const PlanRequest& r) {
  const auto bad = [](const char* name, auto value, const std::string& expected) {
    return invalid_argument(fmt::format("{} is {}, expected {}", name, value, expected));
  };
  constexpr int64_t kMost = 1000000;
  if (r.variants < 0 || r.variants > kMost) return bad("--variants", r.variants, "0 to 1000000");
  if (r.concurrency < 1 || r.concurrency > kMost)
    return bad("--concurrency", r.concurrency, "1 to 1000000");
  if (r.context < 2 || r.context > r.model.max_positions)
    return bad("--context", r.context,
               fmt::format("2 to {}, the model's longest", r.model.max_positions));
  if (r.variant.levels < 0 || r.variant.levels > 4)
    return bad("--levels", r.variant.levels, "1 to 4");
  if (r.variant.rank < 0 || r.variant.rank > 1024)
    return bad("--rank", r.variant.rank, "1 to 1024");
  if (r.step_rows < 2 || r.step_rows > 65536) return bad("--step-rows", r.step_rows, "2 to 65536");
  if (!(r.reserve >= 0 && r.reserve < 1)) return bad("--reserve", r.reserve, "0 to less than 1");
  const int64_t ways = r.tensor_parallel;
  if (ways < 0 || (ways > 0 && r.devices.count % ways != 0))
    return bad("--tensor-parallel", ways, fmt::format("a divisor of the {} GPUs", r.devices.count));
  return {};
}

void bound_speed(const PlanRequest& request, const ModelConfig& part, const VariantBytes& variant,
                 ServingPlan* plan) {
  const double rows = static_cast<double>(plan->running);
  plan->base_read = base_bytes_read(part);
  plan->variants_read = std::min(plan->resident, plan->running) * variant.read;
  plan->kv_read = plan->running * request.context * kv_block_bytes(part) / kPlanBlockTokens;
  const double traffic =
      static_cast<double>(plan->base_read + plan->variants_read + plan->kv_read) /
      request.devices.device.bandwidth;
  // Two operations a weight (of two bytes) and row.
  const double arithmetic =
      request.devices.device.operations > 0
          ? rows * static_cast<double>(plan->base_read) / request.devices.device.operations
          : 0;
  plan->step_seconds = std::max(traffic, arithmetic);
  plan->tokens_per_second = rows * static_cast<double>(plan->replicas) / plan->step_seconds;
  if (arithmetic > traffic) {
    plan->bound_by = "arithmetic";
  } else if (plan->kv_read >= std::max(plan->base_read, plan->variants_read)) {
    plan->bound_by = "KV";
  } else {
    plan->bound_by = plan->variants_read > plan->base_read ? "variants" : "base";
  }
}

}  // namespace

Result<ServingPlan> make_plan(const PlanRequest& request) {
  RETURN_IF_ERROR(check(request));
  ServingPlan plan;
  plan.tensor_parallel =
      request.tensor_parallel > 0 ? request.tensor_parallel : request.devices.count;
  plan.replicas = request.devices.count / plan.tensor_parallel;
  ASSIGN_OR_RETURN(const ModelConfig part,
                   tensor_parallel_part(request.model, plan.tensor_parallel));
  const VariantBytes variant = variant_bytes(part, request.variant);
  const int64_t asked = (request.concurrency + plan.replicas - 1) / plan.replicas;
  plan.memory = request.devices.device.memory;
  plan.reserved = static_cast<int64_t>(request.reserve * static_cast<double>(plan.memory));
  plan.base = base_bytes(part);
  plan.workspace = workspace_bytes(part, request.step_rows, std::min(asked, request.step_rows),
                                   request.devices.device.activation_bytes, plan.tensor_parallel);
  plan.variant = variant.resident;
  plan.kv_block = kv_block_bytes(part);
  const int64_t blocks = (request.context + kPlanBlockTokens - 1) / kPlanBlockTokens;
  const int64_t a_request = blocks * plan.kv_block;
  const int64_t room = plan.memory - plan.reserved - plan.base - plan.workspace;
  plan.base_fits = room >= a_request;
  // KV first: a variant that is not resident is loaded when asked for, a request without KV waits.
  plan.running = std::clamp<int64_t>(room / a_request, 0, asked);
  plan.kv_blocks = plan.running * blocks;
  plan.kv = plan.running * a_request;
  plan.variant_knee = std::max<int64_t>(0, room - asked * a_request) / plan.variant;
  plan.request_knee =
      std::max<int64_t>(0, room - request.variants * plan.variant) / a_request * plan.replicas;
  plan.resident = std::clamp<int64_t>((room - plan.kv) / plan.variant, 0, request.variants);
  plan.variants = plan.resident * plan.variant;
  plan.left = room - plan.kv - plan.variants;
  plan.all_fits = plan.running == asked && plan.resident == request.variants;
  // Every replica reads its own copy, but all on one node share the storage's cache.
  const double ways = static_cast<double>(plan.tensor_parallel);
  plan.base_load_seconds = ways * static_cast<double>(plan.base) / request.storage_rate;
  plan.variant_load_seconds = ways * static_cast<double>(plan.variant) / request.storage_rate;
  if (plan.base_fits) bound_speed(request, part, variant, &plan);
  return plan;
}

}  // namespace deltad
