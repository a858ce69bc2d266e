#include "server/admin/actions.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "server/admin/fields.h"
#include "server/admin/pool_actions.h"
#include "server/admin/variant_json.h"
#include "server/openai/models.h"

namespace deltad {
namespace {

// name_param: what the variant's name is called in the request.
ApiError admin_error(const Status& status, const char* name_param) {
  if (status.ok()) return {};
  ApiError error = api_error(status);
  if (status.code() == Code::kNotFound) error.param = name_param;
  return error;
}

ApiError show(Router& router, const std::string& name, AdminAnswer* answer) {
  const Result<VariantInfo> info = router.variant(name);
  if (!info.ok()) return admin_error(info.status(), "name");
  answer->json = variant_json(*info);
  return {};
}

// *added: it is new, and has not replaced another.
Status put(Router& router, const PutFields& fields, bool* added) {
  *added = !fields.replace || !router.variant(fields.source.name).ok();
  return *added ? router.add(fields.source) : router.replace(fields.source);
}

ApiError add(Router& router, std::string_view body, AdminAnswer* answer) {
  PutFields fields;
  RETURN_IF_API_ERROR(read_add(body, &fields));
  answer->variant = fields.source.name;
  bool added = false;
  RETURN_IF_API_ERROR(admin_error(put(router, fields, &added), "name"));
  if (added) answer->status = 201;
  return show(router, fields.source.name, answer);
}

ApiError replace(Router& router, const std::string& name, std::string_view body,
                 AdminAnswer* answer) {
  PutFields fields;
  RETURN_IF_API_ERROR(read_replace(body, name, &fields));
  RETURN_IF_API_ERROR(admin_error(router.replace(fields.source), "name"));
  return show(router, name, answer);
}

ApiError set_limit(Router& router, const std::string& name, std::string_view body,
                   AdminAnswer* answer) {
  VariantLimit limit;
  RETURN_IF_API_ERROR(read_limit(body, &limit));
  RETURN_IF_API_ERROR(admin_error(router.set_limit(name, limit), "name"));
  return show(router, name, answer);
}

// An action that needs nothing but the name.
ApiError simple(Router& router, const AdminRoute& route, std::string_view body,
                Status (Router::*method)(const std::string&), AdminAnswer* answer) {
  RETURN_IF_API_ERROR(read_nothing(body));
  RETURN_IF_API_ERROR(admin_error((router.*method)(route.name), "name"));
  return show(router, route.name, answer);
}

ApiError remove(Router& router, const AdminRoute& route, std::string_view body,
                AdminAnswer* answer) {
  RETURN_IF_API_ERROR(read_nothing(body));
  RETURN_IF_API_ERROR(admin_error(router.remove(route.name), "name"));
  answer->json = Json{{"object", "variant"}, {"name", route.name}, {"deleted", true}};
  return {};
}

// vLLM answers in words, and a name that is taken with a 400.
ApiError load_adapter(Router& router, std::string_view body, AdminAnswer* answer) {
  PutFields fields;
  RETURN_IF_API_ERROR(read_load_adapter(body, router.base_name(), &fields));
  answer->variant = fields.source.name;
  bool added = false;
  const Status status = put(router, fields, &added);
  if (status.code() == Code::kConflict)
    return invalid_value(
        "lora_name",
        fmt::format("the adapter '{}' has already been loaded; with \"load_inplace\": true "
                    "it is replaced.",
                    fields.source.name));
  RETURN_IF_API_ERROR(admin_error(status, "lora_name"));
  answer->text = fmt::format("Success: LoRA adapter '{}' added successfully.", fields.source.name);
  return {};
}

ApiError unload_adapter(Router& router, std::string_view body, AdminAnswer* answer) {
  RETURN_IF_API_ERROR(read_unload_adapter(body, &answer->variant));
  RETURN_IF_API_ERROR(admin_error(router.remove(answer->variant), "lora_name"));
  answer->text = fmt::format("Success: LoRA adapter '{}' removed successfully.", answer->variant);
  return {};
}

Json list(const Router& router) {
  Json data = Json::array();
  for (const VariantInfo& info : router.variants()) data.push_back(variant_json(info));
  Json json;
  json["object"] = "list";
  json["data"] = std::move(data);
  return json;
}

}  // namespace

ApiError perform(const Serving& serving, const AdminRoute& route, std::string_view body,
                 AdminAnswer* answer) {
  Router& router = *serving.router;
  answer->variant = route.name;
  switch (route.action) {
    case AdminAction::kModels:
      answer->json = list_models(serving, nullptr);
      return {};
    case AdminAction::kCache:
      answer->json = cache_json(router.cache_tier(Tier::kDevice), router.cache_tier(Tier::kHost));
      return {};
    case AdminAction::kList:
      answer->json = list(router);
      return {};
    case AdminAction::kGet:
      return show(router, route.name, answer);
    case AdminAction::kAdd:
      return add(router, body, answer);
    case AdminAction::kReplace:
      return replace(router, route.name, body, answer);
    case AdminAction::kRemove:
      return remove(router, route, body, answer);
    case AdminAction::kPin:
      return simple(router, route, body, &Router::pin, answer);
    case AdminAction::kUnpin:
      return simple(router, route, body, &Router::unpin, answer);
    case AdminAction::kPrefetch:
      answer->status = 202;
      return simple(router, route, body, &Router::prefetch, answer);
    case AdminAction::kEvict:
      return simple(router, route, body, &Router::evict, answer);
    case AdminAction::kLimit:
      return set_limit(router, route.name, body, answer);
    case AdminAction::kPool:
    case AdminAction::kPoolAdd:
    case AdminAction::kPoolGet:
    case AdminAction::kPoolRemove:
    case AdminAction::kPoolBudget:
    case AdminAction::kPoolOperation:
    case AdminAction::kPoolCancel:
      return perform_on_pool(serving.pool, route, body, answer);
    case AdminAction::kLoadAdapter:
      return load_adapter(router, body, answer);
    case AdminAction::kUnloadAdapter:
      return unload_adapter(router, body, answer);
    case AdminAction::kHealth:
    case AdminAction::kDebug:
    case AdminAction::kPage:
    case AdminAction::kState:
    case AdminAction::kPlayground:
    case AdminAction::kNone:
      break;
  }
  return api_error(internal_error("an admin action that nobody performs"));
}

}  // namespace deltad
