#include "kernels/ref/linear.h"

#include <cmath>
#include <cstring>

namespace deltad::ref {

std::vector<double> product(const uint16_t* w, const float* x, int64_t rows, int64_t columns) {
  std::vector<double> y(static_cast<size_t>(rows), 0.0);
  for (int64_t o = 0; o < rows; ++o)
    for (int64_t c = 0; c < columns; ++c) {
      const uint32_t bits = static_cast<uint32_t>(w[o * columns + c]) << 16;
      float value;
      std::memcpy(&value, &bits, sizeof value);
      y[static_cast<size_t>(o)] += static_cast<double>(value) * static_cast<double>(x[c]);
    }
  return y;
}

std::vector<double> sign_product(const std::vector<SignLevel>& levels, const float* x, int64_t rows,
                                 int64_t columns) {
  std::vector<double> y(static_cast<size_t>(rows), 0.0);
  for (const SignLevel& level : levels)
    for (int64_t o = 0; o < rows; ++o) {
      double sum = 0.0;
      for (int64_t c = 0; c < columns; ++c)
        sum += level.signs[o * columns + c] * static_cast<double>(x[c]);
      y[static_cast<size_t>(o)] += static_cast<double>(level.alpha[o]) * sum;
    }
  return y;
}

std::vector<double> low_rank_product(const LowRankPart& part, const float* x, int64_t rows,
                                     int64_t columns) {
  std::vector<double> y(static_cast<size_t>(rows), 0.0);
  for (int64_t k = 0; k < part.rank; ++k) {
    double t = 0.0;
    for (int64_t c = 0; c < columns; ++c)
      t += static_cast<double>(part.a[k * columns + c]) * static_cast<double>(x[c]);
    for (int64_t o = 0; o < rows; ++o)
      y[static_cast<size_t>(o)] += part.scale * static_cast<double>(part.b[o * part.rank + k]) * t;
  }
  return y;
}

double silu(double v) { return v / (1.0 + std::exp(-v)); }

}  // namespace deltad::ref
