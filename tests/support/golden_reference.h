// References of tests/golden: tensors of a safetensors file, and how far values are from them.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "io/safetensors.h"
#include "tensor/float16.h"
#include "tensor/tensor_view.h"

namespace deltad::testing {

template <typename T>
std::vector<T> read_tensor(const SafetensorsFile& file, const std::string& name) {
  const SafetensorsEntry* entry = file.find(name);
  EXPECT_NE(entry, nullptr) << name;
  if (entry == nullptr) return {};
  std::vector<T> out(static_cast<size_t>(entry->bytes) / sizeof(T));
  EXPECT_TRUE(file.read(*entry, 0, entry->bytes, out.data()).ok());
  return out;
}

inline std::vector<int32_t> read_ids(const SafetensorsFile& file, const std::string& name) {
  std::vector<int32_t> out;
  for (int64_t id : read_tensor<int64_t>(file, name)) out.push_back(static_cast<int32_t>(id));
  return out;
}

// Largest difference of a matrix's rows from `expected` [rows, columns].
inline float largest_difference(const TensorView& values, const std::vector<float>& expected,
                                int64_t columns) {
  float worst = 0;
  for (int64_t r = 0; r < values.rows(); ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      const float value = values.dtype == DType::kF32 ? values.row<float>(r)[c]
                                                      : bf16_to_f32(values.row<uint16_t>(r)[c]);
      const float difference = std::fabs(value - expected[static_cast<size_t>(r * columns + c)]);
      if (!(difference <= worst)) worst = std::isnan(difference) ? INFINITY : difference;
    }
  }
  return worst;
}

}  // namespace deltad::testing
