// LoraAdapter from a GGUF file, as llama.cpp's convert_lora_to_gguf writes them: tensors
// NAME.lora_a and NAME.lora_b, one alpha for all.
#include <fmt/core.h>

#include "delta/float_codec.h"
#include "delta/lora_adapter.h"
#include "io/gguf.h"
#include "io/quote.h"
#include "model/gguf_checkpoint.h"

namespace deltad {
namespace {

std::optional<DType> float_type(uint32_t type) {
  switch (static_cast<GgufType>(type)) {
    case GgufType::kF32:
      return DType::kF32;
    case GgufType::kF16:
      return DType::kF16;
    case GgufType::kBF16:
      return DType::kBF16;
    default:
      return std::nullopt;
  }
}

Status check_kind(const GgufFile& file) {
  const auto expect = [&](const char* key, const std::string& expected) -> Status {
    ASSIGN_OR_RETURN(const std::string found, file.string(key));
    if (found == expected) return {};
    return invalid_argument(fmt::format("{}: {} is {}, expected '{}' for a LoRA adapter",
                                        file.path(), key, quoted_name(found), expected));
  };
  RETURN_IF_ERROR(expect("general.type", "adapter"));
  RETURN_IF_ERROR(expect("adapter.type", "lora"));
  return expect("general.architecture", "llama");
}

}  // namespace

Status LoraAdapter::open_gguf(const std::string& path, const WeightTable* table) {
  ASSIGN_OR_RETURN(const std::shared_ptr<FileReader> reader, FileReader::open(path));
  reader_ = reader;
  ASSIGN_OR_RETURN(const std::unique_ptr<GgufFile> file, GgufFile::open(reader));
  RETURN_IF_ERROR(check_kind(*file));
  ASSIGN_OR_RETURN(const double alpha, file->number("adapter.lora.alpha"));
  for (const auto& [name, tensor] : file->tensors()) {
    const bool is_a = name.ends_with(".lora_a"), is_b = name.ends_with(".lora_b");
    const std::string stem = is_a || is_b ? name.substr(0, name.size() - 7) : name;
    const std::optional<GgufName> hub = hub_name_of(stem);
    if (!(is_a || is_b) || !hub || (table != nullptr && table->by_name.count(hub->name) == 0))
      return invalid_argument(
          fmt::format("{}: tensor {} belongs to no module of the base", path, quoted_name(name)));
    if (hub->name == "model.embed_tokens.weight")
      return unimplemented(
          fmt::format("{}: tensor {}: factors of the embeddings are supported in PEFT folders only",
                      path, quoted_name(name)));
    const std::optional<DType> type = float_type(tensor.type);
    if (!type || tensor.shape.size() != 2)
      return invalid_argument(
          fmt::format("{}: tensor {} is {} with {} dimensions, expected a matrix of F32, F16 or "
                      "BF16",
                      path, quoted_name(name), gguf_type_name(tensor.type), tensor.shape.size()));
    AdapterChange& change = changes_[hub->name];
    (is_a ? change.a : change.b) = AdapterTensor{
        name, {*type, Shape{tensor.shape[0], tensor.shape[1]}, tensor.offset, tensor.bytes}};
    // What llama.cpp makes of an alpha of 0: no scaling.
    if (is_a) change.rank = tensor.shape[0];
    if (is_a) change.scale = alpha == 0 ? 1.0 : alpha / static_cast<double>(change.rank);
    if (hub->permuted && table != nullptr) change.head_rows = table->head_dim;
  }
  return {};
}

}  // namespace deltad
