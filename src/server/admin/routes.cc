#include "server/admin/routes.h"

#include <optional>

#include "server/request_target.h"

namespace deltad {
namespace {

constexpr std::string_view kVariants = "/admin/v1/variants/";
constexpr std::string_view kAdapters = "/admin/v1/pool/adapters/";
constexpr std::string_view kOperations = "/admin/v1/pool/operations/";

struct Known {
  std::string_view path, method, allow;
  AdminAction action;
};

constexpr Known kKnown[] = {
    {"/admin/v1/variants", "GET", "GET, HEAD, POST", AdminAction::kList},
    {"/admin/v1/variants", "POST", "GET, HEAD, POST", AdminAction::kAdd},
    {"/admin/v1/cache", "GET", "GET, HEAD", AdminAction::kCache},
    {"/admin/v1/pool", "GET", "GET, HEAD", AdminAction::kPool},
    {"/admin/v1/pool/adapters", "POST", "POST", AdminAction::kPoolAdd},
    {"/admin/v1/pool/budget", "PUT", "PUT", AdminAction::kPoolBudget},
    {"/v1/load_lora_adapter", "POST", "POST", AdminAction::kLoadAdapter},
    {"/v1/unload_lora_adapter", "POST", "POST", AdminAction::kUnloadAdapter},
    {"/v1/models", "GET", "GET, HEAD", AdminAction::kModels},
    {"/health", "GET", "GET, HEAD", AdminAction::kHealth},
};

constexpr Known kOfName[] = {
    {"", "GET", "", AdminAction::kGet},
    {"", "PUT", "", AdminAction::kReplace},
    {"", "DELETE", "", AdminAction::kRemove},
};

constexpr Known kOfAdapter[] = {
    {"", "GET", "", AdminAction::kPoolGet},
    {"", "DELETE", "", AdminAction::kPoolRemove},
};

constexpr Known kOfOperation[] = {
    {"", "GET", "", AdminAction::kPoolOperation},
    {"", "DELETE", "", AdminAction::kPoolCancel},
};

constexpr Known kUnderName[] = {
    {"pin", "POST", "", AdminAction::kPin},           {"unpin", "POST", "", AdminAction::kUnpin},
    {"prefetch", "POST", "", AdminAction::kPrefetch}, {"evict", "POST", "", AdminAction::kEvict},
    {"rate_limit", "PUT", "", AdminAction::kLimit},
};

AdminRoute match_variant(std::string_view method, std::string_view rest) {
  AdminRoute route;
  route.allow = "GET, HEAD, PUT, DELETE";
  const size_t slash = rest.rfind('/');
  if (slash != std::string_view::npos && slash > 0) {
    for (const Known& known : kUnderName) {
      if (rest.substr(slash + 1) != known.path) continue;
      route.allow = "GET, HEAD, POST, PUT, DELETE";
      if (method != known.method) continue;
      route.action = known.action;
      route.name = percent_decoded(rest.substr(0, slash));
      return route;
    }
  }
  route.name = percent_decoded(rest);
  for (const Known& known : kOfName) {
    if (method == known.method) route.action = known.action;
  }
  return route;
}

// What follows a prefix, if the path has it.
std::optional<std::string_view> after(std::string_view prefix, std::string_view path) {
  if (path.size() <= prefix.size() || path.substr(0, prefix.size()) != prefix) return std::nullopt;
  return path.substr(prefix.size());
}

template <size_t n>
AdminRoute match_item(std::string_view method, std::string_view rest, const Known (&known)[n]) {
  AdminRoute route;
  route.allow = "GET, HEAD, DELETE";
  route.name = percent_decoded(rest);
  for (const Known& k : known)
    if (method == k.method) route.action = k.action;
  return route;
}

}  // namespace

const char* admin_action_name(AdminAction action) {
  switch (action) {
    case AdminAction::kNone:
      return "none";
    case AdminAction::kHealth:
      return "health";
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
  if (const auto rest = after(kVariants, path)) return match_variant(method, *rest);
  if (const auto rest = after(kAdapters, path)) return match_item(method, *rest, kOfAdapter);
  if (const auto rest = after(kOperations, path)) return match_item(method, *rest, kOfOperation);
  AdminRoute route;
  for (const Known& known : kKnown) {
    if (path != known.path) continue;
    route.allow = known.allow;
    if (method == known.method) route.action = known.action;
  }
  return route;
}

}  // namespace deltad
