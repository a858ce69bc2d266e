// The paths of the admin listener. Pure.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "server/access/need.h"

namespace deltad {

enum class AdminAction {
  kNone,
  kHealth,
  kPage,  // the page in the browser and its files
  kState,
  kPlayground,  // a chat, for the page
  kModels,
  kCache,
  kList,
  kGet,
  kAdd,
  kReplace,
  kRemove,
  kPin,
  kUnpin,
  kPrefetch,
  kEvict,
  kLimit,
  kPool,
  kPoolAdd,
  kPoolGet,
  kPoolRemove,
  kPoolBudget,
  kPoolOperation,
  kPoolCancel,
  kLoadAdapter,  // vLLM's names for adding and removing
  kUnloadAdapter
};
const char* admin_action_name(AdminAction action);

// A path that is answered. Every member has to be given: a path without a need does not compile.
struct KnownAdminRoute {
  constexpr KnownAdminRoute(std::string_view method, std::string_view path, AdminAction action,
                            Need need)
      : method(method), path(path), action(action), need(need) {}

  std::string_view method;  // GET stands for HEAD too
  std::string_view path;    // {}: a name, which may contain slashes
  AdminAction action;
  Need need;
};
std::span<const KnownAdminRoute> known_admin_routes();

struct AdminRoute {
  AdminAction action = AdminAction::kNone;  // kNone: no such path, or not with that method
  Need need = Need::kAdmin;                 // of what is not known too
  std::string allow;                        // methods, as in the Allow header; empty: no such path
  std::string name;  // of the variant or adapter, decoded; may contain slashes; or an operation's
};

// target: path and query, as sent. The last part of /admin/v1/variants/NAME/pin is an action only
// for the method that the action has and after a slash that is not encoded: so GET …/a/pin and POST
// …/a%2Fpin/evict are about a variant "a/pin".
AdminRoute match_admin_route(std::string_view method, std::string_view target);

}  // namespace deltad
