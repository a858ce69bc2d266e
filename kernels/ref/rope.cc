#include "kernels/ref/rope.h"

#include <cmath>

namespace deltad::ref {

double rope_angle(int64_t position, int i, int head_dim, double theta) {
  return static_cast<double>(position) * std::pow(theta, -2.0 * i / head_dim);
}

std::vector<double> rotate(const std::vector<double>& head, int64_t position, double theta) {
  const size_t half = head.size() / 2;
  std::vector<double> out(head.size());
  for (size_t i = 0; i < half; ++i) {
    const double angle =
        rope_angle(position, static_cast<int>(i), static_cast<int>(head.size()), theta);
    out[i] = head[i] * std::cos(angle) - head[i + half] * std::sin(angle);
    out[i + half] = head[i + half] * std::cos(angle) + head[i] * std::sin(angle);
  }
  return out;
}

}  // namespace deltad::ref
