#include "server/admin/routes.h"

#include "server/request_target.h"

namespace deltad {
namespace {

// The first that fits path and method is meant: what ends in a word comes before the bare name,
// which may hold slashes.
constexpr KnownAdminRoute kKnown[] = {
    {"GET", "/health", AdminAction::kHealth, Need::kNothing},
    {"GET", "/", AdminAction::kPage, Need::kNothing},
    {"GET", "/page/page.css", AdminAction::kPage, Need::kNothing},
    {"GET", "/page/page.js", AdminAction::kPage, Need::kNothing},
    {"GET", "/admin/v1/state", AdminAction::kState, Need::kAdmin},
    {"POST", "/admin/v1/playground", AdminAction::kPlayground, Need::kAdmin},
    {"GET", "/v1/models", AdminAction::kModels, Need::kAdmin},
    {"POST", "/v1/load_lora_adapter", AdminAction::kLoadAdapter, Need::kAdmin},
    {"POST", "/v1/unload_lora_adapter", AdminAction::kUnloadAdapter, Need::kAdmin},
    {"GET", "/admin/v1/variants", AdminAction::kList, Need::kAdmin},
    {"POST", "/admin/v1/variants", AdminAction::kAdd, Need::kAdmin},
    {"POST", "/admin/v1/variants/{}/pin", AdminAction::kPin, Need::kAdmin},
    {"POST", "/admin/v1/variants/{}/unpin", AdminAction::kUnpin, Need::kAdmin},
    {"POST", "/admin/v1/variants/{}/prefetch", AdminAction::kPrefetch, Need::kAdmin},
    {"POST", "/admin/v1/variants/{}/evict", AdminAction::kEvict, Need::kAdmin},
    {"PUT", "/admin/v1/variants/{}/rate_limit", AdminAction::kLimit, Need::kAdmin},
    {"GET", "/admin/v1/variants/{}", AdminAction::kGet, Need::kAdmin},
    {"PUT", "/admin/v1/variants/{}", AdminAction::kReplace, Need::kAdmin},
    {"DELETE", "/admin/v1/variants/{}", AdminAction::kRemove, Need::kAdmin},
    {"GET", "/admin/v1/cache", AdminAction::kCache, Need::kAdmin},
    {"GET", "/admin/v1/pool", AdminAction::kPool, Need::kAdmin},
    {"PUT", "/admin/v1/pool/budget", AdminAction::kPoolBudget, Need::kAdmin},
    {"POST", "/admin/v1/pool/adapters", AdminAction::kPoolAdd, Need::kAdmin},
    {"GET", "/admin/v1/pool/adapters/{}", AdminAction::kPoolGet, Need::kAdmin},
    {"DELETE", "/admin/v1/pool/adapters/{}", AdminAction::kPoolRemove, Need::kAdmin},
    {"GET", "/admin/v1/pool/operations/{}", AdminAction::kPoolOperation, Need::kAdmin},
    {"DELETE", "/admin/v1/pool/operations/{}", AdminAction::kPoolCancel, Need::kAdmin},
};

// Whether the path is of this pattern; name: what stands for its {}, not decoded.
bool fits(std::string_view pattern, std::string_view path, std::string_view* name) {
  const size_t at = pattern.find("{}");
  if (at == std::string_view::npos) return path == pattern;
  const std::string_view prefix = pattern.substr(0, at), suffix = pattern.substr(at + 2);
  if (path.size() <= prefix.size() + suffix.size() || !path.starts_with(prefix) ||
      !path.ends_with(suffix))
    return false;
  *name = path.substr(prefix.size(), path.size() - prefix.size() - suffix.size());
  return true;
}

void allow(std::string_view method, std::string* list) {
  if (method_allowed(method, *list)) return;
  *list += (list->empty() ? "" : ", ") + std::string(method);
  if (method == "GET") *list += ", HEAD";
}

}  // namespace

std::span<const KnownAdminRoute> known_admin_routes() { return kKnown; }

const char* admin_action_name(AdminAction action) {
  switch (action) {
    case AdminAction::kNone:
      return "none";
    case AdminAction::kHealth:
      return "health";
    case AdminAction::kPage:
      return "page";
    case AdminAction::kState:
      return "state";
    case AdminAction::kPlayground:
      return "playground";
    case AdminAction::kModels:
      return "models";
    case AdminAction::kCache:
      return "cache";
    case AdminAction::kList:
      return "list";
    case AdminAction::kGet:
      return "get";
    case AdminAction::kAdd:
    case AdminAction::kLoadAdapter:
      return "add";
    case AdminAction::kReplace:
      return "replace";
    case AdminAction::kRemove:
    case AdminAction::kUnloadAdapter:
      return "remove";
    case AdminAction::kPin:
      return "pin";
    case AdminAction::kUnpin:
      return "unpin";
    case AdminAction::kPrefetch:
      return "prefetch";
    case AdminAction::kEvict:
      return "evict";
    case AdminAction::kLimit:
      return "rate_limit";
    case AdminAction::kPool:
      return "pool";
    case AdminAction::kPoolAdd:
      return "pool_add";
    case AdminAction::kPoolGet:
      return "pool_get";
    case AdminAction::kPoolRemove:
      return "pool_remove";
    case AdminAction::kPoolBudget:
      return "pool_budget";
    case AdminAction::kPoolOperation:
      return "pool_operation";
    case AdminAction::kPoolCancel:
      return "pool_cancel";
  }
  return "none";
}

AdminRoute match_admin_route(std::string_view method, std::string_view target) {
  if (method == "HEAD") method = "GET";
  const std::string_view path = path_of(target);
  AdminRoute route;
  for (const KnownAdminRoute& known : kKnown) {
    std::string_view name;
    if (!fits(known.path, path, &name)) continue;
    allow(known.method, &route.allow);
    if (known.method != method || route.action != AdminAction::kNone) continue;
    route.action = known.action;
    route.need = known.need;
    route.name = percent_decoded(name);
  }
  return route;
}

}  // namespace deltad
