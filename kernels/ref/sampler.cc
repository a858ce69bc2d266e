#include "kernels/ref/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace deltad::ref {

std::vector<double> token_probabilities(std::vector<double> logits,
                                        const std::vector<LogitChange>& changes,
                                        const Sampling& sampling) {
  for (const LogitChange& change : changes) {
    double& x = logits[static_cast<size_t>(change.token)];
    x += change.bias;
    if (change.count < 0) continue;
    x = x > 0 ? x / sampling.repetition_penalty : x * sampling.repetition_penalty;
    if (change.count > 0)
      x -= sampling.frequency_penalty * change.count + sampling.presence_penalty;
  }
  std::vector<size_t> order(logits.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  std::vector<double> weights(logits.size(), 0.0);
  if (sampling.temperature == 0) {
    weights[order[0]] = 1;
    return weights;
  }
  if (sampling.top_k > 0) order.resize(std::min<size_t>(order.size(), sampling.top_k));
  double sum = 0;
  for (const size_t token : order)
    sum += weights[token] = std::exp((logits[token] - logits[order[0]]) / sampling.temperature);
  double kept = 0, before = 0;
  for (const size_t token : order) {
    const bool out = before >= sampling.top_p * sum || weights[token] < sampling.min_p;
    before += weights[token];
    if (out) weights[token] = 0;
    kept += weights[token];
  }
  for (double& weight : weights) weight /= kept;
  return weights;
}

std::vector<double> log_softmax(const std::vector<double>& logits) {
  const double max = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const double x : logits) sum += std::exp(x - max);
  std::vector<double> out;
  for (const double x : logits) out.push_back(x - max - std::log(sum));
  return out;
}

}  // namespace deltad::ref
