#include "deltactl/inspect_adapter.h"

#include <fmt/core.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "delta/lora_adapter.h"
#include "delta/variant_path.h"
#include "delta/variant_reader.h"
#include "deltactl/console.h"
#include "io/gguf.h"
#include "model/checkpoint.h"

namespace deltad {
namespace {

using Json = nlohmann::ordered_json;

// What of adapter_config.json says what is computed.
constexpr const char* kSettings[] = {"base_model_name_or_path",
                                     "peft_type",
                                     "r",
                                     "lora_alpha",
                                     "use_rslora",
                                     "use_dora",
                                     "bias",
                                     "fan_in_fan_out",
                                     "rank_pattern",
                                     "alpha_pattern",
                                     "target_modules",
                                     "exclude_modules",
                                     "layers_to_transform",
                                     "layers_pattern",
                                     "modules_to_save"};

Json shape_json(const Shape& shape) {
  Json out = Json::array();
  for (int i = 0; i < shape.rank(); ++i) out.push_back(shape[i]);
  return out;
}

// Tensors of a safetensors file, and their bytes.
Json tensors_json(const SafetensorsFile& file, int64_t* bytes) {
  Json tensors = Json::array();
  for (const auto& [name, entry] : file.tensors()) {
    tensors.push_back({{"name", name},
                       {"type", dtype_name(entry.dtype)},
                       {"shape", shape_json(entry.shape)},
                       {"bytes", entry.bytes}});
    *bytes += entry.bytes;
  }
  return tensors;
}

// The files themselves: settings, tensors, bytes.
Result<Json> peft_files(const std::string& folder) {
  ASSIGN_OR_RETURN(const std::string weights, find_variant_file(folder));
  ASSIGN_OR_RETURN(
      const std::string text,
      read_file((std::filesystem::path(folder) / kAdapterConfig).string(), kMaxAdapterConfigBytes));
  const Json config = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  Json settings = Json::object();
  for (const char* key : kSettings)
    if (config.is_object() && config.contains(key) && !config[key].is_null() &&
        !(config[key].is_structured() && config[key].empty()))
      settings[key] = config[key];
  ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::open(weights));
  int64_t bytes = 0;
  const Json tensors = tensors_json(file, &bytes);
  return Json{{"file", weights},
              {"kind", "PEFT folder"},
              {"settings", settings},
              {"bytes", bytes},
              {"tensors", tensors}};
}

Result<Json> packed_file(const std::string& path) {
  ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::open(path));
  Json settings = Json::object();
  for (const auto& [key, value] : file.metadata()) {
    const bool of_one_module = key.find('.') != std::string::npos;
    if (key != "digest" && !of_one_module) settings[key] = value;
  }
  int64_t bytes = 0;
  const Json tensors = tensors_json(file, &bytes);
  return Json{{"file", path},
              {"kind", "packed file"},
              {"settings", settings},
              {"bytes", bytes},
              {"tensors", tensors}};
}

Result<Json> gguf_file(const std::string& path) {
  ASSIGN_OR_RETURN(const auto file, GgufFile::open(path));
  Json settings = Json::object();
  for (const char* key : {"general.type", "general.architecture", "general.name", "adapter.type"})
    if (const auto value = file->string(key); value.ok()) settings[key] = *value;
  if (const auto alpha = file->number("adapter.lora.alpha"); alpha.ok())
    settings["adapter.lora.alpha"] = *alpha;
  Json tensors = Json::array();
  int64_t bytes = 0;
  for (const auto& [name, tensor] : file->tensors()) {
    tensors.push_back({{"name", name},
                       {"type", gguf_type_name(tensor.type)},
                       {"shape", tensor.shape},
                       {"bytes", tensor.bytes}});
    bytes += tensor.bytes;
  }
  return Json{{"file", path},
              {"kind", "GGUF file"},
              {"settings", settings},
              {"bytes", bytes},
              {"tensors", tensors}};
}

Json tensor_json(const std::string& weight, const AdapterTensor& tensor) {
  return {{"name", weight},
          {"type", dtype_name(tensor.entry.dtype)},
          {"shape", shape_json(tensor.entry.shape)},
          {"bytes", tensor.entry.bytes}};
}

Json module_json(const std::string& weight, const AdapterChange& change, int packed_bits) {
  const Shape &a = change.a->entry.shape, &b = change.b->entry.shape;
  std::string type = dtype_name(change.a->entry.dtype);
  if (change.b->entry.dtype != change.a->entry.dtype)
    type += std::string("/") + dtype_name(change.b->entry.dtype);
  int64_t bytes = change.a->entry.bytes + change.b->entry.bytes;
  if (change.packed) {
    type = fmt::format("{} bits", packed_bits);
    bytes = change.packed->bytes;
  }
  return {{"name", weight},
          {"rank", change.rank},
          {"scale", change.scale},
          {"type", type},
          {"shape", shape_json(change.embedding ? Shape{a[1], b[0]} : Shape{b[0], a[1]})},
          {"bytes", bytes}};
}

// What it would do, if it is served: modules, dense tensors, digest.
Result<Json> meaning(const std::string& path, const WeightTable* table) {
  ASSIGN_OR_RETURN(const LoraAdapter adapter, table != nullptr
                                                  ? LoraAdapter::open(path, *table)
                                                  : LoraAdapter::open_without_base(path));
  Json modules = Json::array(), dense = Json::array();
  for (const auto& [weight, change] : adapter.changes()) {
    if (change.whole)
      dense.push_back(tensor_json(weight, *change.whole));
    else
      modules.push_back(module_json(weight, change, adapter.packed_bits()));
  }
  ASSIGN_OR_RETURN(const std::string digest, adapter_digest(adapter, {}));
  return Json{{"modules", modules}, {"dense_tensors", dense}, {"digest", digest}};
}

// "4", or "1, 4" if modules differ.
std::string values_of(const Json& modules, const char* key) {
  std::set<double> values;
  for (const Json& module : modules) values.insert(module[key].get<double>());
  std::string out;
  for (const double value : values) out += fmt::format("{}{:g}", out.empty() ? "" : ", ", value);
  return out;
}

void print_table(const Json& rows, bool with_rank) {
  if (rows.empty()) return;
  fmt::print("\n{:<56} {}{:<9} {:<16} {:>10}\n", "tensor",
             with_rank ? fmt::format("{:>5} {:>8} ", "rank", "scale") : "", "type", "shape",
             "size");
  for (const Json& row : rows)
    fmt::print("{:<56} {}{:<9} {:<16} {:>10}\n", row["name"].get<std::string>(),
               with_rank ? fmt::format("{:>5} {:>8.4g} ", row["rank"].get<int64_t>(),
                                       row["scale"].get<double>())
                         : "",
               row["type"].get<std::string>(), row["shape"].dump(),
               human_bytes(row["bytes"].get<int64_t>()));
}

void print_document(const Json& document) {
  const auto line = [](const std::string& key, const std::string& value) {
    fmt::print("{:<13} {}\n", key, value);
  };
  line("file", document["file"].get<std::string>());
  line("kind", "LoRA adapter, " + document["kind"].get<std::string>());
  for (const auto& [key, value] : document["settings"].items())
    line(key, value.is_string() ? value.get<std::string>() : value.dump());
  line("tensors", fmt::format("{}, {}", document["tensors"].size(),
                              human_bytes(document["bytes"].get<int64_t>())));
  if (!document["refused"].is_null()) {
    line("refused", document["refused"].get<std::string>());
    print_table(document["tensors"], false);
    return;
  }
  const Json& modules = document["modules"];
  line("changes", fmt::format("{} matrices by low rank, {} tensors whole", modules.size(),
                              document["dense_tensors"].size()));
  line("rank", values_of(modules, "rank"));
  line("scale", values_of(modules, "scale"));
  line("digest", document["digest"] == ""
                     ? "depends on the base, as the embeddings change: give --base"
                     : document["digest"].get<std::string>());
  if (!document["base_checked"].get<bool>())
    fmt::print("Names and shapes were not compared with a base: give --base for that.\n");
  print_table(modules, true);
  print_table(document["dense_tensors"], false);
}

}  // namespace

Status inspect_adapter(const std::string& path, const std::string& base, bool json) {
  Result<Json> files = is_directory(path)               ? peft_files(path)
                       : path.ends_with(kAdapterSuffix) ? packed_file(path)
                                                        : gguf_file(path);
  RETURN_IF_ERROR(files.status());
  Json document = std::move(*files);
  std::optional<WeightTable> table;
  if (!base.empty()) {
    ASSIGN_OR_RETURN(const auto checkpoint, Checkpoint::open(base));
    table = make_weight_table(checkpoint->config());
  }
  const Result<Json> found = meaning(path, table ? &*table : nullptr);
  document["refused"] = found.ok() ? Json() : Json(found.status().message());
  document["base_checked"] = table.has_value();
  if (found.ok()) document.update(*found);
  if (json)
    print_json(document);
  else
    print_document(document);
  return {};
}

}  // namespace deltad
