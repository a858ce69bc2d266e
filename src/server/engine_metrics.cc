#include "server/engine_metrics.h"

#include <chrono>

namespace deltad {
namespace {

void one(PrometheusText& out, const char* name, const char* type, const char* help, double value) {
  out.family(name, type, help);
  out.sample({}, value);
}

double share(int64_t part, int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

}  // namespace

void render_engine(const EngineStats& stats, PrometheusText& out) {
  one(out, "deltad_sequences_running", "gauge", "Sequences that run.",
      static_cast<double>(stats.running));
  one(out, "deltad_sequences_waiting", "gauge", "Sequences that wait to run.",
      static_cast<double>(stats.waiting));
  one(out, "deltad_steps_total", "counter", "Steps of the engine.",
      static_cast<double>(stats.steps));
  one(out, "deltad_steps_planned_ahead_total", "counter",
      "Of these, planned while the step before ran.",
      static_cast<double>(stats.steps_planned_ahead));
  one(out, "deltad_step_rows", "gauge", "Rows (tokens) of the last step: the batch size.",
      stats.last_step_rows);
  one(out, "deltad_step_seconds", "gauge", "Duration of the last step.", stats.last_step_seconds);
  one(out, "deltad_engine_prompt_tokens_total", "counter", "Prompt tokens computed.",
      static_cast<double>(stats.prompt_tokens));
  one(out, "deltad_engine_generated_tokens_total", "counter", "Tokens generated.",
      static_cast<double>(stats.generated_tokens));
  one(out, "deltad_preemptions_total", "counter", "Sequences set back for want of KV blocks.",
      static_cast<double>(stats.preemptions));
  one(out, "deltad_kv_swapped_out_total", "counter",
      "Sequences set back whose KV blocks went to host memory.",
      static_cast<double>(stats.swapped_out));
  one(out, "deltad_kv_swapped_in_total", "counter",
      "Sequences whose KV blocks came back from host memory.",
      static_cast<double>(stats.swapped_in));
  one(out, "deltad_kv_host_blocks", "gauge", "KV blocks that host memory has room for.",
      static_cast<double>(stats.kv_host_blocks));
  one(out, "deltad_kv_host_blocks_used", "gauge", "Of these, held by sequences that wait.",
      static_cast<double>(stats.kv_host_blocks_used));
  one(out, "deltad_kv_blocks", "gauge", "Blocks of the KV cache.",
      static_cast<double>(stats.kv_blocks));
  one(out, "deltad_kv_blocks_used", "gauge", "Blocks that running sequences hold.",
      static_cast<double>(stats.kv_blocks_used));
  one(out, "deltad_kv_blocks_cached", "gauge", "Blocks kept only for prefix reuse.",
      static_cast<double>(stats.kv_blocks_cached));
  one(out, "deltad_workspace_bytes", "gauge", "Memory of a step: activations and logits.",
      static_cast<double>(stats.workspace_bytes));
  one(out, "deltad_prefix_queries_total", "counter", "Prompt tokens looked up in the prefix cache.",
      static_cast<double>(stats.prefix_queries));
  one(out, "deltad_prefix_hits_total", "counter", "Prompt tokens found in the prefix cache.",
      static_cast<double>(stats.prefix_hits));
}

void render_vllm_names(const MetricsSnapshot& snapshot, const std::string& running,
                       const std::string& waiting, PrometheusText& out) {
  const EngineStats& stats = snapshot.engine;
  const PrometheusText::Labels model = {{"model_name", snapshot.base_name}};
  out.family("vllm:num_requests_running", "gauge", "Sequences that run.");
  out.sample(model, static_cast<double>(stats.running));
  out.family("vllm:num_requests_waiting", "gauge",
             "Sequences that wait to run or for their variant.");
  out.sample(model, static_cast<double>(stats.waiting + snapshot.router.waiting.total()));
  out.family("vllm:kv_cache_usage_perc", "gauge", "Share of the KV cache in use, 0 to 1.");
  out.sample(model, share(stats.kv_blocks_used, stats.kv_blocks));
  out.family("vllm:cache_config_info", "gauge", "Shape of the KV cache.");
  out.sample({{"block_size", std::to_string(stats.block_tokens)},
              {"num_gpu_blocks", std::to_string(stats.kv_blocks)}},
             1);
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  out.family("vllm:lora_requests_info", "gauge",
             "Variants in memory, and waited for; the value is the time.");
  out.sample({{"max_lora", std::to_string(snapshot.router.fit)},
              {"running_lora_adapters", running},
              {"waiting_lora_adapters", waiting}},
             std::chrono::duration<double>(now).count());
}

}  // namespace deltad
