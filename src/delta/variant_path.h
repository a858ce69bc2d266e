// Where a variant lies: a file NAME.delta.safetensors, or a folder with exactly one such file and
// the text files (tokenizer.json, …) that differ from the base's; or a LoRA adapter: a PEFT folder
// or a file NAME.gguf or NAME.lora.safetensors (delta/packed_adapter). Any thread.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace deltad {

inline constexpr const char* kVariantSuffix = ".delta.safetensors";

// Of a LoRA folder as PEFT writes it.
inline constexpr const char* kAdapterConfig = "adapter_config.json";
inline constexpr const char* kAdapterWeights = "adapter_model.safetensors";
// Of a packed adapter.
inline constexpr const char* kAdapterSuffix = ".lora.safetensors";
constexpr int64_t kMaxAdapterConfigBytes = int64_t{1} << 20;

// The text files that a variant folder may bring.
inline constexpr const char* kVariantTextFiles[] = {
    "tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"};

// Whether `path` is a LoRA adapter: a folder with adapter_config.json and no variant file, or a
// file NAME.gguf or NAME.lora.safetensors.
bool is_adapter(const std::string& path);

// The file with the tensors of the variant that `path` stands for. kNotFound, or kInvalidArgument
// if a folder holds no variant file, or several, and is no adapter.
Result<std::string> find_variant_file(const std::string& path);

// Content of a text file of a variant folder; "" if `path` is a single file or has none of that
// name.
Result<std::string> variant_text_file(const std::string& path, const std::string& name);

// "sql" for "…/sql.delta.safetensors", "…/sql.lora.safetensors", "…/sql.gguf" and for a folder
// "…/sql/".
std::string variant_name_of(const std::string& path);

}  // namespace deltad
