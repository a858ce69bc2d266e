#include "server/openai/models.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "server/generation/generation_plan.h"

namespace deltad {
namespace {

Json model_json(const Serving& serving, const std::string& id, int64_t created,
                const std::string& root, Json parent) {
  Json json;
  json["id"] = id;
  json["object"] = "model";
  json["created"] = created;
  json["owned_by"] = "deltad";
  json["root"] = root;
  json["parent"] = std::move(parent);
  json["max_model_len"] = serving.engine->max_context();
  return json;
}

Json base_json(const Serving& serving) {
  return model_json(serving, serving.router->base_name(), serving.created, serving.base_path,
                    Json());
}

Json variant_json(const Serving& serving, const VariantInfo& info) {
  return model_json(serving, info.name, info.created, info.path, Json(serving.router->base_name()));
}

}  // namespace

Json list_models(const Serving& serving, const Caller* caller) {
  const auto shown = [caller](const std::string& name) {
    return caller == nullptr || caller->may_use(name);
  };
  Json data = Json::array();
  if (shown(serving.router->base_name())) data.push_back(base_json(serving));
  for (const VariantInfo& info : serving.router->variants()) {
    if (shown(info.name)) data.push_back(variant_json(serving, info));
  }
  Json json;
  json["object"] = "list";
  json["data"] = std::move(data);
  return json;
}

ApiError get_model(const Serving& serving, const Caller& caller, const std::string& id, Json* out) {
  ModelHandle model;
  RETURN_IF_API_ERROR(resolve_model(serving, caller, id, &model));
  if (id == serving.router->base_name()) {
    *out = base_json(serving);
    return {};
  }
  for (const VariantInfo& info : serving.router->variants()) {
    if (info.name != id) continue;
    *out = variant_json(serving, info);
    return {};
  }
  return api_error(not_found("This model does not exist."));  // not any more
}

}  // namespace deltad
