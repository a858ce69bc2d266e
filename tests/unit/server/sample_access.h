// Access for tests: keys in the config, or none.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/access/access.h"

namespace deltad::testing {

inline std::unique_ptr<Access> access_with(std::vector<std::string> api_keys,
                                           std::vector<std::string> admin_api_keys = {}) {
  AccessOptions options;
  options.api_keys = std::move(api_keys);
  options.admin_api_keys = std::move(admin_api_keys);
  return std::move(*Access::make(options));
}

inline std::unique_ptr<Access> open_access() { return access_with({}); }

}  // namespace deltad::testing
