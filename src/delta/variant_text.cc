#include "delta/variant_text.h"

#include <map>

#include "delta/digest.h"
#include "delta/variant_path.h"
#include "io/file_reader.h"

namespace deltad {

Result<std::shared_ptr<const TextAssets>> variant_text(
    const std::string& path, const std::shared_ptr<const TextAssets>& base) {
  if (!is_directory(path)) return base;
  bool brings_any = false;
  Status failed;
  const auto file = [&](const std::string& name) -> std::string {
    auto content = variant_text_file(path, name);
    if (!content.ok()) {
      failed = content.status();
      return "";
    }
    brings_any = brings_any || !content->empty();
    return std::move(*content);
  };
  auto own = load_text_assets(file, base.get());
  RETURN_IF_ERROR(failed);
  if (!brings_any) return base;
  return own;
}

Result<std::string> variant_text_digest(const std::string& path) {
  if (!is_directory(path)) return std::string();
  std::map<std::string, HashedTensor> files;
  for (const char* name : kVariantTextFiles) {
    ASSIGN_OR_RETURN(const std::string content, variant_text_file(path, name));
    const auto bytes = static_cast<int64_t>(content.size());
    TensorHasher hasher;
    hasher.update(content.data(), bytes);
    files.emplace(name, HashedTensor{DType::kU8, Shape{bytes}, hasher.finish()});
  }
  return variant_digest(files);
}

}  // namespace deltad
