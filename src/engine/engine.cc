#include "engine/engine.h"

#include <fmt/core.h>

#include <optional>
#include <utility>

#include "base/log.h"
#include "engine/base_model.h"
#include "engine/kv_size.h"
#include "engine/memory_budget.h"
#include "engine/parallel_runner.h"
#include "engine/threaded_engine.h"
#include "engine/transformer_runner.h"

namespace deltad {
namespace {

constexpr int32_t kMostStepRows = 65536;

Status check_options(const EngineOptions& o) {
  const auto bad = [](const char* name, auto value, const char* expected) {
    return invalid_argument(fmt::format("{} is {}, expected {}", name, value, expected));
  };
  if (o.block_tokens != 16) return bad("block_tokens", o.block_tokens, "16");
  if (o.max_step_rows < 2 || o.max_step_rows > kMostStepRows)
    return bad("max_step_rows", o.max_step_rows, "2 to 65536");
  if (o.max_running < 1) return bad("max_running", o.max_running, "1 or more");
  if (o.max_waiting < 0) return bad("max_waiting", o.max_waiting, "0 or more");
  if (!(o.step_seconds > 0)) return bad("step_seconds", o.step_seconds, "more than 0");
  if (!(o.age_seconds > 0)) return bad("age_seconds", o.age_seconds, "more than 0");
  if (!(o.background_share >= 0)) return bad("background_share", o.background_share, "0 or more");
  if (!(o.burst_tokens >= 0)) return bad("burst_tokens", o.burst_tokens, "0 or more");
  if (!(o.weights.base > 0)) return bad("base_weight", o.weights.base, "more than 0");
  for (const auto& [name, weight] : o.weights.variants)
    if (!(weight > 0))
      return bad("variant_weights", fmt::format("{}: {}", name, weight), "more than 0");
  return {};
}

// How large the KV cache is. block_bytes: of one layer; free_bytes: of the device, if it has memory
// of its own.
struct KvPlan {
  KvGeometry geometry;
  int32_t max_context = 0;
};
Result<KvPlan> plan_kv(const ModelConfig& config, int64_t block_bytes,
                       std::optional<int64_t> free_bytes, const EngineOptions& options) {
  ASSIGN_OR_RETURN(const KvSize size,
                   size_kv(options, config.max_positions, block_bytes * config.layers,
                           free_bytes.value_or(available_memory())));
  const KvGeometry geometry{config.layers, size.blocks, options.block_tokens, block_bytes};
  log_info("KV cache: {} blocks of {} tokens, {:.1f} MiB; context {} tokens", size.blocks,
           options.block_tokens, static_cast<double>(geometry.bytes()) / (1 << 20),
           size.max_context);
  return KvPlan{geometry, size.max_context};
}

// Host memory for preempted sequences, and for how many blocks. An automatic size that the machine
// does not grant is none. make(blocks): of a cache that lies on devices, `on_device`.
struct HostKv {
  std::unique_ptr<KvSwap> swap;
  int32_t blocks = 0;
};
template <class Make>
Result<HostKv> make_host_kv(bool on_device, const KvGeometry& geometry,
                            const EngineOptions& options, const Make& make) {
  HostKv made;
  const bool automatic = options.kv_host_bytes == kAutomaticBytes;
  made.blocks = host_kv_blocks(options, geometry, available_memory());
  if (made.blocks == 0 || !on_device) return HostKv();
  auto swap = make(made.blocks);
  if (!swap.ok() && !automatic) return swap.status().in("kv_host");
  if (!swap.ok()) {
    log_warning("preempted sequences will be computed again: {}", swap.status().message());
    return HostKv();
  }
  made.swap = std::move(*swap);
  log_info("host memory for {} KV blocks of preempted sequences, {:.1f} MiB", made.blocks,
           static_cast<double>(made.blocks * geometry.layers * geometry.block_bytes) / (1 << 20));
  return made;
}

// memory: of the KV cache; none if the runner has it.
std::unique_ptr<Engine> start_engine(const ModelConfig& config, size_t weight_bytes,
                                     const EngineOptions& options,
                                     std::unique_ptr<ModelRunner> runner, Buffer memory,
                                     const KvPlan& kv) {
  SchedulerOptions scheduler;
  scheduler.max_step_rows = options.max_step_rows;
  scheduler.max_running = options.max_running;
  scheduler.step_seconds = options.step_seconds;
  scheduler.age_seconds = options.age_seconds;
  scheduler.background_share = options.background_share;
  scheduler.base_bytes = weight_bytes;
  scheduler.burst_tokens = options.burst_tokens;
  scheduler.weights = options.weights;
  const EngineLimits limits{config.vocab, kv.max_context, options.max_waiting,
                            from_seconds(options.stall_seconds)};
  return std::make_unique<ThreadedEngine>(
      std::move(runner), KvCache(std::move(memory), kv.geometry, options.prefix_cache), scheduler,
      limits);
}

Result<std::unique_ptr<Engine>> make_parallel(const ModelConfig& config, ParallelBackend& backend,
                                              const EngineOptions& options) {
  RETURN_IF_ERROR(check_options(options));
  ASSIGN_OR_RETURN(auto transformer,
                   ParallelTransformer::make(config, backend, from_seconds(options.stall_seconds),
                                             options.max_step_rows, config.max_positions));
  ASSIGN_OR_RETURN(const KvPlan kv,
                   plan_kv(config, transformer->kv_block_bytes(options.block_tokens),
                           backend.device_free_bytes(), options));
  RETURN_IF_ERROR(transformer->allocate_kv(kv.geometry.blocks, options.block_tokens));
  ASSIGN_OR_RETURN(HostKv host,
                   make_host_kv(backend.device_free_bytes().has_value(), kv.geometry, options,
                                [&](int32_t blocks) { return transformer->new_kv_swap(blocks); }));
  auto runner = std::make_unique<ParallelRunner>(std::move(transformer), backend,
                                                 std::move(host.swap), host.blocks);
  return start_engine(config, backend.weight_bytes(), options, std::move(runner), Buffer(), kv);
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::make(const ModelConfig& config, const WeightTable& table,
                                             Backend& backend, const EngineOptions& options) {
  RETURN_IF_ERROR(check_options(options));
  ASSIGN_OR_RETURN(
      auto transformer,
      Transformer::make(config, table, backend, options.max_step_rows, config.max_positions));
  const int64_t block_bytes =
      backend.ops().kv_block_bytes(transformer->attention_shape(), options.block_tokens);
  ASSIGN_OR_RETURN(const KvPlan kv,
                   plan_kv(config, block_bytes, backend.device_free_bytes(), options));
  ASSIGN_OR_RETURN(Buffer memory, backend.allocate(static_cast<size_t>(kv.geometry.bytes())));
  const KvView view{memory.data(), kv.geometry.blocks, kv.geometry.block_tokens,
                    kv.geometry.block_bytes};
  ASSIGN_OR_RETURN(HostKv host, make_host_kv(backend.device_free_bytes().has_value(), kv.geometry,
                                             options, [&](int32_t blocks) {
                                               return backend.new_kv_swap(view, kv.geometry.layers,
                                                                          blocks);
                                             }));
  auto runner = std::make_unique<TransformerRunner>(std::move(transformer), backend,
                                                    std::move(host.swap), host.blocks);
  return start_engine(config, backend.weight_bytes(), options, std::move(runner), std::move(memory),
                      kv);
}

Result<std::unique_ptr<Engine>> Engine::make(const BaseModel& base, const EngineOptions& options) {
  return base.parallel ? make_parallel(base.config(), *base.parallel, options)
                       : make(base.config(), base.table, *base.backend, options);
}

}  // namespace deltad
