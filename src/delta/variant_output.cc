#include "delta/variant_output.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "delta/variant_path.h"
#include "io/aside_file.h"
#include "io/file_reader.h"
#include "io/safetensors.h"

namespace deltad {
namespace fs = std::filesystem;

namespace {

// kNotFound, or what the system says, if the file could not be made there now. Folders that are
// still to be made will be in the nearest one that there is.
Status check_writable(const VariantOutput& output) {
  fs::path file = output.file;
  std::error_code error;
  if (output.is_folder) {
    fs::path folder = fs::absolute(output.path, error);
    while (!fs::exists(folder, error) && folder.has_relative_path()) folder = folder.parent_path();
    file = folder / fs::path(output.file).filename();
  }
  return AsideFile::create(file.string(), 0).status();
}

}  // namespace

VariantOutput variant_output(const std::string& path, const std::string& name) {
  VariantOutput output;
  output.path = path;
  output.name = name.empty() ? variant_name_of(path) : name;
  output.is_folder = is_directory(path) || fs::path(path).extension() != ".safetensors";
  output.file =
      output.is_folder ? (fs::path(path) / (output.name + kVariantSuffix)).string() : path;
  return output;
}

Status check_output(const VariantOutput& output, const std::vector<TextChange>& changes) {
  if (output.name.empty() || output.name.find('/') != std::string::npos)
    return invalid_argument(fmt::format("'{}' is no name for a variant: give --name", output.name));
  RETURN_IF_ERROR(check_writable(output));
  if (!output.is_folder) {
    if (changes.empty()) return {};
    std::string list;
    for (const TextChange& change : changes)
      list += fmt::format("\n  {}: {}", change.name, change.reason);
    return invalid_argument(
        fmt::format("the fine-tune has text files that differ from the base's, and a single file "
                    "cannot hold them; write a folder (-o {}), or leave them behind with "
                    "--weights-only:{}",
                    (fs::path(output.path).parent_path() / output.name).string(), list));
  }
  if (!is_directory(output.path)) return {};
  std::error_code error;
  for (fs::directory_iterator it(output.path, error), end; !error && it != end;
       it.increment(error)) {
    const std::string name = it->path().filename().string(), suffix = kVariantSuffix;
    if (name.size() >= suffix.size() &&
        name.compare(name.size() - suffix.size(), suffix.size(), suffix) == 0 &&
        it->path() != fs::path(output.file))
      return invalid_argument(
          fmt::format("{}: the folder already holds another variant, {}; a variant folder has one",
                      output.path, name));
    const bool is_text = std::any_of(std::begin(kVariantTextFiles), std::end(kVariantTextFiles),
                                     [&](const char* text) { return name == text; });
    const bool replaced = std::any_of(changes.begin(), changes.end(),
                                      [&](const TextChange& c) { return c.name == name; });
    if (is_text && !replaced)
      return invalid_argument(fmt::format(
          "{}: the folder already holds a {}, which would hold for this variant; remove "
          "it or write another folder",
          output.path, name));
  }
  if (error) return internal_error(fmt::format("{}: {}", output.path, error.message()));
  return {};
}

Status write_text_changes(const VariantOutput& output, const std::vector<TextChange>& changes) {
  if (!output.is_folder) return {};
  std::error_code error;
  fs::create_directories(output.path, error);
  if (error)
    return internal_error(
        fmt::format("{}: cannot make the folder: {}", output.path, error.message()));
  for (const TextChange& change : changes)
    RETURN_IF_ERROR(write_file((fs::path(output.path) / change.name).string(), change.content));
  return {};
}

}  // namespace deltad
