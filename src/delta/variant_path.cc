#include "delta/variant_path.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <vector>

#include "io/file_reader.h"

namespace deltad {
namespace fs = std::filesystem;
namespace {

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() > end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

}  // namespace

Result<std::string> find_variant_file(const std::string& path) {
  if (!is_directory(path)) {
    if (!file_exists(path)) return not_found(fmt::format("{}: no such variant file", path));
    return path;
  }
  std::vector<std::string> found;
  std::error_code error;
  for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error))
    if (ends_with(it->path().filename().string(), kVariantSuffix))
      found.push_back(it->path().string());
  if (error) return internal_error(fmt::format("{}: {}", path, error.message()));
  if (found.size() == 1) return found[0];
  if (found.empty() && file_exists((fs::path(path) / "adapter_config.json").string()))
    return invalid_argument(fmt::format(
        "{}: a LoRA adapter folder, not a variant: make one with deltactl compress --adapter",
        path));
  std::sort(found.begin(), found.end());
  std::string names;
  for (const std::string& file : found) names += " " + fs::path(file).filename().string();
  return invalid_argument(fmt::format("{}: expected exactly one *{} in this folder, found {}{}{}",
                                      path, kVariantSuffix, found.size(), found.empty() ? "" : ":",
                                      names));
}

Result<std::string> variant_text_file(const std::string& path, const std::string& name) {
  if (!is_directory(path)) return std::string();
  const std::string file = (fs::path(path) / name).string();
  if (!file_exists(file)) return std::string();
  return read_file(file);
}

std::string variant_name_of(const std::string& path) {
  fs::path at(path);
  if (!at.has_filename()) at = at.parent_path();
  const std::string name = at.filename().string();
  const std::string suffix = kVariantSuffix;
  return ends_with(name, suffix) ? name.substr(0, name.size() - suffix.size()) : name;
}

}  // namespace deltad
