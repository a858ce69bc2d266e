#include "kernels/ref/attention.h"

#include <algorithm>
#include <cmath>

namespace deltad::ref {

std::vector<double> attend(const std::vector<double>& query,
                           const std::vector<std::vector<double>>& keys,
                           const std::vector<std::vector<double>>& values, double scale) {
  std::vector<double> scores;
  for (const auto& key : keys) {
    double dot = 0;
    for (size_t d = 0; d < query.size(); ++d) dot += query[d] * key[d];
    scores.push_back(dot * scale);
  }
  const double top = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (double& s : scores) sum += s = std::exp(s - top);
  std::vector<double> out(query.size(), 0.0);
  for (size_t t = 0; t < keys.size(); ++t) {
    for (size_t d = 0; d < out.size(); ++d) out[d] += scores[t] / sum * values[t][d];
  }
  return out;
}

}  // namespace deltad::ref
