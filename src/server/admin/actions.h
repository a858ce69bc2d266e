// What an admin request does. May read a variant's header from the disk: for a thread that has the
// time.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "server/admin/routes.h"
#include "server/openai/errors.h"
#include "server/serving.h"

namespace deltad {

struct AdminAnswer {
  int status = 200;
  Json json;
  std::string text;     // if not empty: the answer, in place of json
  std::string variant;  // which it was about; for the log
};

ApiError perform(const Serving& serving, const AdminRoute& route, std::string_view body,
                 AdminAnswer* answer);

}  // namespace deltad
