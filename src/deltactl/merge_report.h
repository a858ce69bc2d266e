// What deltactl merge says when it is done, for people. Main thread.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace deltad {

// document: as printed with --json.
void print_merge_report(const nlohmann::ordered_json& document);

}  // namespace deltad
