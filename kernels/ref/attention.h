// The oracle of attention: fp64, one formula a line, nothing shared with the kernels it checks.
#pragma once

#include <cstdint>
#include <vector>

namespace deltad::ref {

// Softmax attention of one query over keys and values [length][head_dim]; returns [head_dim].
std::vector<double> attend(const std::vector<double>& query,
                           const std::vector<std::vector<double>>& keys,
                           const std::vector<std::vector<double>>& values, double scale);

}  // namespace deltad::ref
