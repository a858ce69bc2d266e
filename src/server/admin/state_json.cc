#include "server/admin/state_json.h"

#include <nlohmann/json.hpp>
#include <string>

#include "server/admin/variant_json.h"

namespace deltad {
namespace {

// count[i] values lie between bounds[i − 1] and bounds[i] seconds; the last is beyond them all.
Json histogram_json(const Histogram& histogram) {
  Json json;
  json["bounds"] = histogram.bounds();
  json["counts"] = Json::array();
  for (size_t i = 0; i <= histogram.bounds().size(); ++i)
    json["counts"].push_back(histogram.count(i));
  return json;
}

Json engine_json(const EngineStats& stats) {
  Json json;
  json["running"] = stats.running;
  json["waiting"] = stats.waiting;
  json["kv_blocks"] = stats.kv_blocks;
  json["kv_blocks_used"] = stats.kv_blocks_used;
  json["kv_blocks_cached"] = stats.kv_blocks_cached;
  json["workspace_bytes"] = stats.workspace_bytes;
  json["block_tokens"] = stats.block_tokens;
  json["steps"] = stats.steps;
  json["prompt_tokens"] = stats.prompt_tokens;
  json["generated_tokens"] = stats.generated_tokens;
  json["preemptions"] = stats.preemptions;
  json["swapped_out"] = stats.swapped_out;
  json["swapped_in"] = stats.swapped_in;
  json["kv_host_blocks"] = stats.kv_host_blocks;
  json["kv_host_blocks_used"] = stats.kv_host_blocks_used;
  json["last_step_seconds"] = stats.last_step_seconds;
  return json;
}

// Of an engine with nothing to do the last step is history.
Json batch_json(const EngineStats& stats, const std::string& base_name) {
  Json json = Json::array();
  if (stats.running == 0) return json;
  for (const StepGroup& group : stats.last_step)
    json.push_back(
        Json{{"model", group.variant.empty() ? base_name : group.variant}, {"rows", group.rows}});
  return json;
}

}  // namespace

Json state_json(const Serving& serving, const RequestFigures& figures) {
  const Router& router = *serving.router;
  const EngineStats stats = serving.engine->stats();
  Json json;
  json["object"] = "state";
  json["healthy"] = serving.engine->healthy();
  json["base"] = Json{{"name", router.base_name()},
                      {"bytes", serving.base_bytes},
                      {"max_context", serving.engine->max_context()},
                      {"loaded", serving.created}};
  json["engine"] = engine_json(stats);
  json["batch"] = batch_json(stats, router.base_name());
  json["requests"] = figures.requests;
  json["first_token_seconds"] = histogram_json(figures.first_token);
  json["per_token_seconds"] = histogram_json(figures.per_token);
  json["cache"] = cache_json(router.cache_tier(Tier::kDevice), router.cache_tier(Tier::kHost));
  json["variants"] = Json::array();
  for (const VariantInfo& info : router.variants()) json["variants"].push_back(variant_json(info));
  return json;
}

}  // namespace deltad
