// deltactl plan: what a model, its variants and their requests need of given devices.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "deltactl/commands.h"
#include "deltactl/console.h"
#include "plan/model_shapes.h"
#include "plan/serving_plan.h"

namespace deltad {
namespace {

struct Options {
  std::string model, gpus, storage_rate = "1GB/s", memory_bandwidth, dense = "norms";
  PlanRequest request;
  int64_t adapter_rank = 0;  // 0: variants are signs
  bool json = false;
};

void print_table(const PlanRequest& request, const ServingPlan& plan) {
  const int64_t devices = request.devices.count;
  fmt::print("{} and {} variants on {} x {}: {} {} of {} sharing a copy of the base\n\n",
             request.model.name, request.variants, devices, request.devices.device.name,
             plan.replicas, plan.replicas == 1 ? "group" : "groups", plan.tensor_parallel);
  fmt::print("{:<34} {:>12} {:>12}\n", "memory", "per device", "total");
  const auto line = [&](const std::string& what, int64_t bytes) {
    fmt::print("{:<34} {:>12} {:>12}\n", what, human_bytes(bytes), human_bytes(bytes * devices));
  };
  line("reserved", plan.reserved);
  line("base", plan.base);
  line("workspace", plan.workspace);
  line(fmt::format("KV of {} requests ({} blocks)", plan.running * plan.replicas,
                   plan.kv_blocks * plan.replicas),
       plan.kv);
  line(fmt::format("{} resident variants", plan.resident), plan.variants);
  line("a variant", plan.variant);
  if (plan.left < 0) {
    line("missing", -plan.left);
  } else {
    line("left", plan.left);
  }
  line("device", plan.memory);
  fmt::print("\n");
  if (!plan.base_fits) {
    fmt::print("Does not fit: no room for the base, a step and one request of {} tokens.\n",
               request.context);
    return;
  }
  fmt::print("{}\n", plan.all_fits ? "Everything fits." : "Not everything fits at once.");
  fmt::print("With {} requests running, {} variants stay in memory; one more evicts another.\n",
             request.concurrency, plan.variant_knee);
  fmt::print("With {} variants in memory, {} requests run; one more waits.\n", request.variants,
             plan.request_knee);
  fmt::print("Cold load at {:.2f} GB/s: base {:.2f} s, a variant {:.3f} s.\n",
             request.storage_rate / 1e9, plan.base_load_seconds, plan.variant_load_seconds);
  fmt::print(
      "At most {:.0f} tokens/s in all, {:.2f} ms a token, bound by {}\n"
      "(a step reads, per device: base {}, variants {}, KV {}).\n",
      plan.tokens_per_second, plan.step_seconds * 1e3, plan.bound_by, human_bytes(plan.base_read),
      human_bytes(plan.variants_read), human_bytes(plan.kv_read));
}

void print_plan_json(const PlanRequest& request, const ServingPlan& plan) {
  const auto sizes = [&](int64_t scale) {
    return nlohmann::ordered_json{
        {"memory", plan.memory * scale},   {"reserved", plan.reserved * scale},
        {"base", plan.base * scale},       {"workspace", plan.workspace * scale},
        {"kv", plan.kv * scale},           {"variants", plan.variants * scale},
        {"variant", plan.variant * scale}, {"left", plan.left * scale}};
  };
  print_json({{"model", request.model.name},
              {"device", request.devices.device.name},
              {"device_source", request.devices.device.source},
              {"devices", request.devices.count},
              {"tensor_parallel", plan.tensor_parallel},
              {"replicas", plan.replicas},
              {"base_fits", plan.base_fits},
              {"all_fits", plan.all_fits},
              {"bytes_per_device", sizes(1)},
              {"bytes_total", sizes(request.devices.count)},
              {"kv_block_bytes", plan.kv_block},
              {"kv_blocks", plan.kv_blocks},
              {"running_requests", plan.running * plan.replicas},
              {"resident_variants", plan.resident},
              {"variant_knee", plan.variant_knee},
              {"request_knee", plan.request_knee},
              {"base_load_seconds", plan.base_load_seconds},
              {"variant_load_seconds", plan.variant_load_seconds},
              {"step_seconds", plan.step_seconds},
              {"tokens_per_second", plan.tokens_per_second},
              {"bound_by", plan.bound_by}});
}

Result<int> run(Options options) {
  PlanRequest& request = options.request;
  ASSIGN_OR_RETURN(request.model, planned_model(options.model));
  ASSIGN_OR_RETURN(request.devices, parse_devices(options.gpus));
  ASSIGN_OR_RETURN(request.storage_rate, parse_rate(options.storage_rate));
  if (!options.memory_bandwidth.empty()) {
    ASSIGN_OR_RETURN(request.devices.device.bandwidth, parse_rate(options.memory_bandwidth));
    request.devices.device.source += ", bandwidth as given";
  }
  if (options.adapter_rank > 0) {
    request.variant = {0, options.adapter_rank, DenseTensors::kNone};
  } else {
    request.variant.dense = options.dense == "all"     ? DenseTensors::kAll
                            : options.dense == "norms" ? DenseTensors::kNorms
                                                       : DenseTensors::kNone;
  }
  ASSIGN_OR_RETURN(const ServingPlan plan, make_plan(request));
  if (options.json) {
    print_plan_json(request, plan);
  } else {
    print_table(request, plan);
  }
  return plan.base_fits ? 0 : 1;
}

}  // namespace

void add_plan(Command& app, int* exit_code) {
  Command* command = app.add_subcommand(
      "plan", "Say what a model and its variants need of given GPUs: memory, load times, speed");
  auto options = std::make_shared<Options>();
  PlanRequest& request = options->request;
  command
      ->add_option("--model", options->model,
                   "8b or 70b (Llama 3), a folder with a config.json, or a .gguf file")
      ->required();
  command->add_option("--gpus", options->gpus, "8xH100-80GB and the like, or cpu:24GiB")
      ->required();
  command->add_option("--variants", request.variants, "How many variants")->required();
  command->add_option("--context", request.context, "Tokens of a request, prompt and answer")
      ->show_default();
  command->add_option("--concurrency", request.concurrency, "Requests that run at once, in all")
      ->show_default();
  auto* levels = command->add_option("--levels", request.variant.levels, "Levels of signs")
                     ->range(1, 4)
                     ->show_default();
  auto* dense = command
                    ->add_option("--dense", options->dense,
                                 "What else variants hold: none, norms, or all (embeddings, head)")
                    ->one_of({"none", "norms", "all"})
                    ->show_default();
  auto* residual = command
                       ->add_option("--residual-rank", request.variant.rank,
                                    "Rank of low-rank parts beside the signs (0: none)")
                       ->range(0, 1024)
                       ->show_default();
  command->add_option("--rank", options->adapter_rank, "Variants are LoRA adapters of this rank")
      ->range(1, 1024)
      ->excludes(levels)
      ->excludes(residual)
      ->excludes(dense);
  command
      ->add_option("--tensor-parallel", request.tensor_parallel,
                   "GPUs that share a copy of the base; 0: all")
      ->show_default();
  command->add_option("--step-rows", request.step_rows, "engine.max_step_rows of the daemon")
      ->show_default();
  command->add_option("--reserve", request.reserve, "Share of the memory that is left alone")
      ->show_default();
  command->add_option("--storage-rate", options->storage_rate, "What the storage reads")
      ->show_default();
  command->add_option("--memory-bandwidth", options->memory_bandwidth,
                      "Of a device, in place of the known or assumed one (CPU: 20GB/s)");
  add_json_option(command, &options->json);
  run_command(command, exit_code, &options->json, [options] { return run(*options); });
}

}  // namespace deltad
