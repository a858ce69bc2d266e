// The paths that the server knows. Pure.
#pragma once

#include <string>
#include <string_view>

#include "server/metrics.h"

namespace deltad {

struct RouteMatch {
  Route route = Route::kOther;
  std::string_view allow;  // methods, as in the Allow header; empty: there is no such path
  std::string model;       // /v1/models/{id}: the id, decoded; may contain slashes
};

// target: path and query, as sent.
RouteMatch match_route(std::string_view target);

}  // namespace deltad
