// Where a variant lies: a file NAME.delta.safetensors, or a folder with exactly one such file and
// the text files (tokenizer.json, …) that differ from the base's. Any thread.
#pragma once

#include <string>

#include "base/status.h"

namespace deltad {

inline constexpr const char* kVariantSuffix = ".delta.safetensors";

// The text files that a variant folder may bring.
inline constexpr const char* kVariantTextFiles[] = {
    "tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"};

// The variant file that `path` stands for. kNotFound, or kInvalidArgument if a folder holds none
// or several.
Result<std::string> find_variant_file(const std::string& path);

// Content of a text file of a variant folder; "" if `path` is a single file or has none of that
// name.
Result<std::string> variant_text_file(const std::string& path, const std::string& name);

// "sql" for "…/sql.delta.safetensors" and for a folder "…/sql/".
std::string variant_name_of(const std::string& path);

}  // namespace deltad
