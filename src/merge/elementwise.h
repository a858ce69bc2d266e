// The baselines that merge weight by weight: model soup (arXiv 2203.05482), task arithmetic
// (2212.04089), TIES (2306.01708) and DARE (2311.03099). Blocks of rows, so memory does not grow
// with a tensor. Rows may be read by several threads at once.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "merge/merged_tune.h"

namespace deltad {

struct ElementwiseOptions {
  enum class Method {
    kSoup,            // Σ w Δ / Σ w
    kTaskArithmetic,  // λ Σ w Δ
    // Of each Δ its largest entries by size, a share `density` of each tensor; then by entry the
    // sign of Σ w Δ, and λ times the w-weighted mean of those that have it.
    kTies,
    // λ Σ w Δ, each entry of each Δ dropped with probability `drop`, the others divided by 1 −
    // drop.
    kDare,
  };
  Method method = Method::kSoup;
  std::vector<double> weights;  // w of each source
  double lambda = 1;
  double density = 0.2;
  double drop = 0.9;
  uint64_t seed = 0;
};

class ElementwiseMerge : public MergedTune {
 public:
  // The sources stay alive longer.
  ElementwiseMerge(const MergeSources& sources, ElementwiseOptions options);

 protected:
  Status merged_rows(const std::string& name, int64_t first, int64_t count,
                     double* delta) const override;

 private:
  using Thresholds = std::vector<float>;  // of each source
  Result<std::shared_ptr<const Thresholds>> thresholds(const std::string& name) const;
  Result<float> threshold(size_t source, const std::string& name) const;
  Status ties_rows(const std::string& name, int64_t first, int64_t count, double* delta) const;

  const MergeSources& sources_;
  const ElementwiseOptions options_;
  mutable Mutex mutex_;
  mutable std::map<std::string, std::shared_ptr<const Thresholds>> thresholds_ GUARDED_BY(mutex_);
};

// Whether DARE keeps an entry; a pure function of its place, so that it does not depend on threads
// or blocks. stream: dare_stream of the source and tensor.
bool dare_keeps(uint64_t stream, int64_t index, double drop);
uint64_t dare_stream(uint64_t seed, size_t source, const std::string& tensor);

}  // namespace deltad
