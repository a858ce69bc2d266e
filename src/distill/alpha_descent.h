// AlphaDescent: gradient descent on the scales α of a variant's signs, with the signs as they are,
// until the whole model's next-token distributions come as near to the fine-tune's as they can
// (BitDelta's distillation, on KL). Adam over the ratio of each α to what it began with, so that
// one rate fits scales of all sizes. One thread calls.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "delta/layer_fitter.h"
#include "distill/plain_transformer.h"

namespace deltad {

class AlphaDescent {
 public:
  // weights: base + Δ̂ of `fitted`; both outlive it, and follow the steps.
  AlphaDescent(std::map<std::string, FittedMatrix>* fitted, PlainWeights* weights, int threads);

  // One matrix's part of the gradient: gradᵀ·x by its weights.
  void add_gradient(const std::string& weight, const Matrix& x, const Matrix& grad);
  // Moves all α against the gradient, by about `rate` of what they were, and the weights with them.
  void step(double rate);
  // dKL/dα of a level since the last step.
  const std::vector<double>& gradient(const std::string& weight, size_t level) const {
    return states_.at(weight)[level].gradient;
  }

 private:
  struct Level {
    std::vector<float> start;
    std::vector<double> gradient, mean, square;  // by α
  };
  std::map<std::string, FittedMatrix>& fitted_;
  PlainWeights& weights_;
  const int threads_;
  std::map<std::string, std::vector<Level>> states_;
  int steps_ = 0;
};

}  // namespace deltad
