// Reading YAML that people write: what is wrong is said with the file and the line. yaml-cpp's
// exceptions end here. Any thread.
#pragma once

#include <yaml-cpp/yaml.h>

#include <functional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace deltad {

// Calls read with the document. kInvalidArgument if the text is not YAML, else what read returns.
Status read_yaml(std::string_view text, const std::string& file,
                 const std::function<Status(const YAML::Node& root)>& read);

// kInvalidArgument: "FILE line N: what".
Status yaml_error(const std::string& file, const YAML::Node& node, const std::string& what);

}  // namespace deltad
