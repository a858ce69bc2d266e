// The oracle of RMSNorm, fp64.
#pragma once

#include <vector>

namespace deltad::ref {

// x / √(mean(x²) + eps) · weight
std::vector<double> rms_norm(const std::vector<double>& x, const std::vector<double>& weight,
                             double eps);

}  // namespace deltad::ref
