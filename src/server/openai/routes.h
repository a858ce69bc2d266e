// The paths that the server knows. Pure.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "server/access/need.h"
#include "server/metrics.h"

namespace deltad {

// A path that is answered. Every member has to be given: a path without a need does not compile.
struct KnownRoute {
  constexpr KnownRoute(std::string_view path, Route route, std::string_view allow, Need need)
      : path(path), route(route), allow(allow), need(need) {}

  std::string_view path;  // ending in "{model}": what follows is a model's name
  Route route;
  std::string_view allow;  // methods, as in the Allow header
  Need need;
};
std::span<const KnownRoute> known_routes();

struct RouteMatch {
  Route route = Route::kOther;
  Need need = Need::kInference;
  std::string_view allow;  // methods, as in the Allow header; empty: there is no such path
  std::string model;       // /v1/models/{id}: the id, decoded; may contain slashes
};

// target: path and query, as sent.
RouteMatch match_route(std::string_view target);

}  // namespace deltad
