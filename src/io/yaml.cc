#include "io/yaml.h"

#include <fmt/core.h>

namespace deltad {

Status read_yaml(std::string_view text, const std::string& file,
                 const std::function<Status(const YAML::Node& root)>& read) {
  try {
    return read(YAML::Load(std::string(text)));
  } catch (const YAML::Exception& error) {
    return invalid_argument(
        fmt::format("{} line {}: not valid YAML: {}", file, error.mark.line + 1, error.msg));
  }
}

Status yaml_error(const std::string& file, const YAML::Node& node, const std::string& what) {
  const YAML::Mark mark = node.Mark();
  return invalid_argument(mark.is_null()
                              ? fmt::format("{}: {}", file, what)
                              : fmt::format("{} line {}: {}", file, mark.line + 1, what));
}

}  // namespace deltad
