// Element types of tensors, with their sizes and the names that safetensors files use for them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace deltad {

enum class DType { kF32, kF16, kBF16, kU8, kI8, kI32, kI64 };

size_t dtype_size(DType type);       // bytes
const char* dtype_name(DType type);  // "F32", "BF16", … as in safetensors
std::optional<DType> dtype_from_name(std::string_view name);

}  // namespace deltad
