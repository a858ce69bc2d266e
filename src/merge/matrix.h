// Matrix: an owned, row-major fp32 matrix. Plain data.
#pragma once

#include <cstdint>
#include <vector>

namespace deltad {

struct Matrix {
  int64_t rows = 0, columns = 0;
  std::vector<float> values;  // [rows, columns]

  Matrix() = default;
  Matrix(int64_t r, int64_t c) : rows(r), columns(c), values(static_cast<size_t>(r * c)) {}

  float* row(int64_t r) { return values.data() + r * columns; }
  const float* row(int64_t r) const { return values.data() + r * columns; }
  float& at(int64_t r, int64_t c) { return values[static_cast<size_t>(r * columns + c)]; }
  float at(int64_t r, int64_t c) const { return values[static_cast<size_t>(r * columns + c)]; }
};

double squares(const Matrix& a);                 // Σ a², in fp64
double inner(const Matrix& a, const Matrix& b);  // Σ a∘b, in fp64; the shapes are equal

}  // namespace deltad
