#include "kernels/ref/norm.h"

#include <cmath>

namespace deltad::ref {

std::vector<double> rms_norm(const std::vector<double>& x, const std::vector<double>& weight,
                             double eps) {
  double squares = 0;
  for (double v : x) squares += v * v;
  const double scale = 1 / std::sqrt(squares / static_cast<double>(x.size()) + eps);
  std::vector<double> out;
  for (size_t c = 0; c < x.size(); ++c) out.push_back(x[c] * scale * weight[c]);
  return out;
}

}  // namespace deltad::ref
