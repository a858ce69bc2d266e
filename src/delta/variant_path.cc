#include "delta/variant_path.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <vector>

#include "io/file_reader.h"
#include "io/gguf.h"

namespace deltad {
namespace fs = std::filesystem;
namespace {

constexpr const char* kGgufSuffix = ".gguf";

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() > end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

// The variant files of a folder, in a fixed order.
Result<std::vector<std::string>> variant_files(const std::string& folder) {
  std::vector<std::string> found;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    if (ends_with(it->path().filename().string(), kVariantSuffix))
      found.push_back(it->path().string());
  if (error) return internal_error(fmt::format("{}: {}", folder, error.message()));
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace

bool is_adapter(const std::string& path) {
  if (!is_directory(path))
    return (ends_with(path, kGgufSuffix) || ends_with(path, kAdapterSuffix)) && file_exists(path);
  if (!file_exists((fs::path(path) / kAdapterConfig).string())) return false;
  const auto files = variant_files(path);
  return files.ok() && files->empty();
}

Result<TuneForm> tune_form(const std::string& path) {
  if (is_directory(path)) {
    if (is_adapter(path)) return TuneForm::kAdapter;
    ASSIGN_OR_RETURN(const std::vector<std::string> files, variant_files(path));
    const bool is_model = files.empty() && file_exists((fs::path(path) / "config.json").string());
    return is_model ? TuneForm::kModel : TuneForm::kVariant;
  }
  if (!file_exists(path)) return not_found(fmt::format("{}: no such file or folder", path));
  if (!ends_with(path, kGgufSuffix)) return TuneForm::kVariant;
  ASSIGN_OR_RETURN(const auto file, GgufFile::open(path));
  const auto type = file->string("general.type");
  return type.ok() && *type == "adapter" ? TuneForm::kAdapter : TuneForm::kModel;
}

Result<std::string> find_variant_file(const std::string& path) {
  if (!is_directory(path)) {
    if (!file_exists(path)) return not_found(fmt::format("{}: no such variant file", path));
    return path;
  }
  ASSIGN_OR_RETURN(const std::vector<std::string> found, variant_files(path));
  if (found.size() == 1) return found[0];
  if (found.empty() && file_exists((fs::path(path) / kAdapterConfig).string())) {
    const std::string weights = (fs::path(path) / kAdapterWeights).string();
    if (file_exists(weights)) return weights;
    return invalid_argument(
        fmt::format("{}: a LoRA adapter folder without {}", path, kAdapterWeights));
  }
  std::string names;
  for (const std::string& file : found) names += " " + fs::path(file).filename().string();
  return invalid_argument(
      fmt::format("{}: expected exactly one *{}, or {}, in this folder, found {}{}{}", path,
                  kVariantSuffix, kAdapterConfig, found.size(), found.empty() ? "" : ":", names));
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
  for (const std::string suffix : {kVariantSuffix, kAdapterSuffix, kGgufSuffix})
    if (ends_with(name, suffix)) return name.substr(0, name.size() - suffix.size());
  return name;
}

}  // namespace deltad
