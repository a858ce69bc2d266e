#include "tensor/dtype.h"

namespace deltad {

size_t dtype_size(DType type) {
  switch (type) {
    case DType::kU8:
    case DType::kI8:
      return 1;
    case DType::kF16:
    case DType::kBF16:
      return 2;
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kI64:
      return 8;
  }
  return 0;
}

const char* dtype_name(DType type) {
  switch (type) {
    case DType::kF32:
      return "F32";
    case DType::kF16:
      return "F16";
    case DType::kBF16:
      return "BF16";
    case DType::kU8:
      return "U8";
    case DType::kI8:
      return "I8";
    case DType::kI32:
      return "I32";
    case DType::kI64:
      return "I64";
  }
  return "?";
}

std::optional<DType> dtype_from_name(std::string_view name) {
  for (DType type :
       {DType::kF32, DType::kF16, DType::kBF16, DType::kU8, DType::kI8, DType::kI32, DType::kI64})
    if (name == dtype_name(type)) return type;
  return std::nullopt;
}

}  // namespace deltad
