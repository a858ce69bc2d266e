#include "server/admin/debug_json.h"

#include <nlohmann/json.hpp>

#include "base/version.h"
#include "server/admin/state_json.h"

namespace deltad {
namespace {

// Who waits and who runs, by model, and what for.
Json queue_json(const Serving& serving, const ServerMetrics& metrics, const EngineStats& engine) {
  const CacheWaiting waiting = serving.router->stats().waiting;
  Json json;
  json["waiting_for"] = Json{{"load", waiting.load},
                             {"loader", waiting.loader},
                             {"memory", waiting.memory},
                             {"drain", waiting.drain},
                             {"place", engine.waiting}};
  json["models"] = Json::array();
  for (const ModelInUse& model : metrics.in_use())
    json["models"].push_back(
        Json{{"model", model.variant.empty() ? serving.router->base_name() : model.variant},
             {"waiting", model.waiting},
             {"running", model.running}});
  return json;
}

Json loads_json(const Router& router) {
  Json json = Json::array();
  for (const VariantInfo& info : router.variants())
    if (info.state == VariantState::kLoading)
      json.push_back(Json{{"name", info.name}, {"path", info.path}, {"waiting", info.waiting}});
  return json;
}

Json operation_json(const OperationFigures& figures) {
  return Json{{"draining", figures.draining},
              {"config_reloads", figures.reloads},
              {"config_reloads_refused", figures.refused_reloads},
              {"engine_stalls", figures.stalls}};
}

Json spans_json(const SpanSink* spans) {
  if (spans == nullptr) return {};
  const SpanCounts counts = spans->counts();
  return Json{{"exported", counts.exported},
              {"dropped_queue", counts.dropped_full},
              {"dropped_collector", counts.dropped_failed}};
}

}  // namespace

Json debug_json(const Serving& serving, Observer& observer) {
  const EngineStats engine = serving.engine->stats();
  Json json = state_json(serving, observer.metrics().figures());
  json["object"] = "debug_state";
  json["version"] = kVersion;
  json["config_digest"] = serving.config_digest;
  json["engine"]["step_age_seconds"] = seconds(serving.engine->step_age());
  json["engine"]["prefix_queries"] = engine.prefix_queries;
  json["engine"]["prefix_hits"] = engine.prefix_hits;
  json["queue"] = queue_json(serving, observer.metrics(), engine);
  json["loads"] = loads_json(*serving.router);
  json["operation"] = operation_json(observer.metrics().operation());
  json["spans"] = spans_json(observer.spans());
  return json;
}

}  // namespace deltad
