// DistilledFitter: a CalibratedFitter whose α are then improved by distillation: the fine-tune's
// logits on a text are the target, and only α moves (alpha_descent.h). What comes out is taken only
// if it is nearer to the fine-tune on held-out text. Holds the whole model in fp32, so it is for
// small ones. One thread calls; works on several.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "calibrate/calibrated_fitter.h"
#include "distill/plain_transformer.h"

namespace deltad {

struct DistillOptions {
  int steps = 0;
  double rate = 0.01;  // of an α, in the first step; falls to none
  int jobs = 1;
  Progress progress;
};

struct DistillReport {
  int64_t tokens = 0;                     // that steps were taken on, each counted once
  double closed_form = 0, distilled = 0;  // KL on held-out text
  bool taken = false;
};

class DistilledFitter : public LayerFitter {
 public:
  // More weights would take too much memory, and hours.
  static constexpr int64_t kMostWeights = 400'000'000;

  // base and tune outlive it; text: what to learn from. kInvalidArgument if the model is too large.
  static Result<std::unique_ptr<DistilledFitter>> make(const Checkpoint& base, const Tune& tune,
                                                       std::unique_ptr<CalibratedFitter> closed,
                                                       const std::vector<TokenSequence>& text,
                                                       const DistillOptions& options);
  // kInvalidArgument if this model is too large to be distilled.
  static Status check_size(const Checkpoint& base, int64_t most = kMostWeights);

  int levels(const std::string& weight) const override { return closed_->levels(weight); }
  int64_t low_rank(const std::string& weight) const override { return closed_->low_rank(weight); }
  Result<std::map<std::string, FittedMatrix>> fit_layer(int64_t layer) override;
  std::map<std::string, std::string> metadata() const override { return metadata_; }
  Result<std::map<std::string, std::string>> finish() override { return metadata_; }

  const DistillReport& report() const { return report_; }
  const CalibratedFitter& closed() const { return *closed_; }

 private:
  DistilledFitter(const Checkpoint& base, const Tune& tune,
                  std::unique_ptr<CalibratedFitter> closed)
      : base_(base), tune_(tune), closed_(std::move(closed)) {}
  Status distill(const std::vector<TokenSequence>& text, const DistillOptions& options);

  const Checkpoint& base_;
  const Tune& tune_;
  const std::unique_ptr<CalibratedFitter> closed_;
  std::map<std::string, FittedMatrix> fitted_;
  std::map<std::string, std::string> metadata_;
  DistillReport report_;
};

// The weights of a variant: the base's with Δ̂ of what was fitted, and what the fine-tune carries
// whole.
Result<PlainWeights> plain_weights(const Checkpoint& base, const Tune& tune,
                                   const std::map<std::string, FittedMatrix>& fitted);

}  // namespace deltad
