#include "tests/support/cuda_on_cpu/runtime/matrix_product.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "tensor/float16.h"

namespace deltad::emulated_gpu {
namespace {

float load(const std::byte* from, cudaDataType type) {
  if (type == CUDA_R_32F) {
    float value;
    std::memcpy(&value, from, sizeof value);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, from, sizeof bits);
  return type == CUDA_R_16BF ? bf16_to_f32(bits) : f16_to_f32(bits);
}

void store(std::byte* to, cudaDataType type, float value) {
  if (type == CUDA_R_32F) {
    std::memcpy(to, &value, sizeof value);
    return;
  }
  const uint16_t bits = f32_to_bf16(value);
  std::memcpy(to, &bits, sizeof bits);
}

// Calls act(row, column, address of the element) for each, having touched just the matrix's bytes.
// False if they are not all there.
template <class Act>
bool for_each(Gpu& gpu, const Operation& operation, const Layout& layout, const void* base,
              int32_t batch, bool write, Act act) {
  const size_t size = element_bytes(layout.type);
  const bool by_rows = layout.order == CUBLASLT_ORDER_ROW;
  const uint64_t lines = by_rows ? layout.rows : layout.columns;
  const uint64_t length = by_rows ? layout.columns : layout.rows;
  const auto* first =
      static_cast<const std::byte*>(base) + batch * layout.stride * static_cast<int64_t>(size);
  for (uint64_t line = 0; line < lines; ++line) {
    const std::byte* start = first + line * static_cast<uint64_t>(layout.ld) * size;
    std::byte* bytes = gpu.memory.touch(operation, start, length * size, write);
    if (bytes == nullptr) return false;
    for (uint64_t i = 0; i < length; ++i) {
      act(by_rows ? line : i, by_rows ? i : line, bytes + i * size);
    }
  }
  return true;
}

// In fp32, [rows of op][columns of op]; or by columns, so that sums run along memory.
bool read(Gpu& gpu, const Operation& operation, const Layout& layout, const void* base,
          int32_t batch, bool transpose, uint64_t pitch, std::vector<float>* out) {
  out->resize(layout.rows * layout.columns);
  return for_each(gpu, operation, layout, base, batch, false,
                  [&](uint64_t row, uint64_t column, const std::byte* element) {
                    const uint64_t at = transpose ? column * pitch + row : row * pitch + column;
                    (*out)[at] = load(element, layout.type);
                  });
}

float sum(const float* a, const float* b, uint64_t k, const Algorithm& algorithm) {
  const uint64_t part =
      (k + static_cast<uint64_t>(algorithm.splits) - 1) / static_cast<uint64_t>(algorithm.splits);
  const uint64_t step = algorithm.id == 0 ? 16 : 32;
  float all = 0;
  for (uint64_t begin = 0; begin < k; begin += part) {
    const uint64_t end = std::min(k, begin + part);
    float of_part = 0;
    for (uint64_t i = begin; i < end; i += step) {
      float of_step = 0;
      for (uint64_t j = i; j < std::min(end, i + step); ++j)
        of_step = std::fma(a[j], b[j], of_step);
      of_part += of_step;
    }
    all += of_part;
  }
  return all;
}

}  // namespace

size_t element_bytes(cudaDataType type) { return type == CUDA_R_32F ? 4 : 2; }

const char* MatrixProduct::wrong() const {
  if ((transpose_a ? a.columns : a.rows) != m()) return "A and D differ in rows";
  if ((transpose_b ? b.rows : b.columns) != n()) return "B and D differ in columns";
  if ((transpose_b ? b.columns : b.rows) != k()) return "A and B do not go together";
  if (c.rows != d.rows || c.columns != d.columns) return "C and D differ";
  for (const Layout* layout : {&a, &b, &c, &d}) {
    const uint64_t length = layout->order == CUBLASLT_ORDER_ROW ? layout->columns : layout->rows;
    if (layout->ld < static_cast<int64_t>(length)) return "a leading dimension is too small";
    if (layout->batches != d.batches) return "they differ in batches";
  }
  for (const void* address :
       {at_a, at_b, beta == 0 ? nullptr : at_c, static_cast<const void*>(at_d)}) {
    if (reinterpret_cast<uintptr_t>(address) % 16 != 0)
      return "an address is not aligned to 16 bytes";
  }
  return "";
}

size_t MatrixProduct::workspace_bytes() const {
  if (algorithm.splits == 1) return 0;
  return m() * n() * sizeof(float) * static_cast<size_t>(algorithm.splits);
}

void MatrixProduct::run(Gpu& gpu, const Operation& operation) const {
  if (workspace_bytes() > 0 &&
      gpu.memory.touch(operation, workspace, workspace_bytes(), true) == nullptr) {
    return;
  }
  for (int32_t batch = 0; batch < d.batches; ++batch) {
    std::vector<float> left, right, result(m() * n());
    if (!read(gpu, operation, a, at_a, batch, transpose_a, k(), &left) ||
        !read(gpu, operation, b, at_b, batch, !transpose_b, k(), &right)) {
      return;
    }
    for (uint64_t row = 0; row < m(); ++row) {
      for (uint64_t column = 0; column < n(); ++column) {
        result[row * n() + column] =
            alpha * sum(&left[row * k()], &right[column * k()], k(), algorithm);
      }
    }
    const auto add = [&](uint64_t row, uint64_t column, const std::byte* element) {
      float& value = result[row * n() + column];
      value = std::fma(beta, load(element, c.type), value);
    };
    if (beta != 0 && !for_each(gpu, operation, c, at_c, batch, false, add)) return;
    for_each(gpu, operation, d, at_d, batch, true,
             [&](uint64_t row, uint64_t column, std::byte* element) {
               store(element, d.type, result[row * n() + column]);
             });
  }
}

}  // namespace deltad::emulated_gpu
