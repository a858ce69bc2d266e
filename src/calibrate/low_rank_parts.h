// LowRankParts: the low-rank parts of one layer's matrices while these are fitted, each to what the
// signs leave of Δ. Holds the activations that enter the layer. Called by one thread; works on
// several.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "calibrate/layer_walk.h"
#include "calibrate/low_rank_fit.h"
#include "calibrate/tune_rows.h"
#include "delta/adapter_factors.h"
#include "delta/layer_fitter.h"
#include "merge/matrix.h"

namespace deltad {

using FittedMatrices = std::map<std::string, FittedMatrix>;  // by weight
using Ranks = std::vector<std::pair<std::string, int64_t>>;  // of weights, each 1 or more

struct LowRankPart {
  std::vector<uint8_t> packed;  // as in the file
  AdapterFactors factors;       // as they are served
  double energy = 0;            // ‖XΔᵀ‖²
};

class LowRankParts {
 public:
  // rows outlives it.
  LowRankParts(const TuneRows& rows, int jobs) : rows_(rows), jobs_(jobs) {}

  // x [tokens, d_in], of the layer that is fitted next.
  void set_input(LayerInput input, Matrix x) { inputs_[static_cast<size_t>(input)] = std::move(x); }
  // Forgets the parts and the activations.
  void clear();

  // Makes parts of these ranks, of what the signs of `fitted` leave of Δ; without such, of Δ.
  Status fit(const Ranks& ranks, const FittedMatrices& fitted);
  // Null if there is none.
  const LowRankPart* find(const std::string& weight) const;
  // For a plan: the leading directions of what the signs of `fitted` leave of Δ, by weight.
  Result<std::map<std::string, LowRankFit>> directions(const Ranks& most,
                                                       const FittedMatrices& fitted) const;
  // Makes the first `rank` of these (0: none) the matrix's part, not rounded as a file's are.
  void use(const std::string& weight, const LowRankFit& directions, int64_t rank);

 private:
  Result<LowRankFit> fit_to(const std::string& name, int64_t rank, const FittedMatrices& fitted,
                            const RandomizedSvdOptions& svd) const;
  // Δ − Σ αₗsₗ [d_out, d_in]
  Result<Matrix> left_by(const std::string& name, const FittedMatrices& fitted) const;
  Status failed(const std::string& name, const Status& status) const;

  const TuneRows& rows_;
  const int jobs_;
  std::array<Matrix, kLayerInputs> inputs_;
  std::map<std::string, LowRankPart> parts_;
};

}  // namespace deltad
