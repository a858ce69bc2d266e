// TensorView: where a tensor's elements are and how they lie. Owns nothing; passed by value.
#pragma once

#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace deltad {

enum class DeviceKind { kCpu, kCuda };

struct TensorView {
  void* data = nullptr;
  DType dtype = DType::kF32;
  DeviceKind device = DeviceKind::kCpu;
  Shape shape;
  int64_t row_stride =
      0;  // elements from one row (first index) to the next; the last index is contiguous

  template <typename T>
  T* as() const {
    return static_cast<T*>(data);
  }
  template <typename T>
  T* row(int64_t i) const {
    return static_cast<T*>(data) + i * row_stride;
  }
  int64_t rows() const { return shape[0]; }
};

// A [rows, columns] view over memory whose rows are row_stride elements apart.
inline TensorView matrix_view(void* data, DType dtype, int64_t rows, int64_t columns,
                              int64_t row_stride, DeviceKind device = DeviceKind::kCpu) {
  return {data, dtype, device, Shape{rows, columns}, row_stride};
}

}  // namespace deltad
