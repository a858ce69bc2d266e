// Cross-origin requests: which pages of other sites may call the server. Pure.
#pragma once

#include <string>
#include <vector>

#include "server/exchange.h"

namespace deltad {

// The headers that let the page that asks read the answer; none if its origin is not allowed.
// origins: "*" allows all.
HttpHeaders cors_headers(const std::vector<std::string>& origins, const HttpRequest& request);
// The answer to an OPTIONS request; allow: the methods of the path.
HttpResponse preflight(const std::vector<std::string>& origins, const HttpRequest& request,
                       const std::string& allow);

}  // namespace deltad
