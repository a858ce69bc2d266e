#include "distill/distilled_fitter.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "delta/float_codec.h"
#include "delta/low_rank_part.h"
#include "delta/sign_rows.h"
#include "distill/alpha_descent.h"
#include "distill/text_batches.h"
#include "tensor/float16.h"

namespace deltad {
namespace {

constexpr const char* kHead = "lm_head.weight";

}  // namespace

Result<PlainWeights> plain_weights(const Checkpoint& base, const Tune& tune,
                                   const std::map<std::string, FittedMatrix>& fitted) {
  PlainWeights weights;
  const auto place = [&](const std::string& name, const Shape& shape) -> Matrix& {
    const bool vector = shape.rank() == 1;
    return weights[name] = Matrix(vector ? 1 : shape[0], vector ? shape[0] : shape[1]);
  };
  for (const auto& [name, tensor] : base.tensors()) {
    Matrix& to = place(name, tensor.shape);
    std::vector<uint16_t> rows(to.values.size());
    RETURN_IF_ERROR(base.read_rows_bf16(name, 0, tensor.shape[0], rows.data()));
    std::transform(rows.begin(), rows.end(), to.values.begin(),
                   [](uint16_t v) { return bf16_to_f32(v); });
  }
  for (const auto& [name, tensor] : tune.tensors()) {
    if (tensor.as_delta) continue;
    Matrix& to = place(name, tensor.shape);
    RETURN_IF_ERROR(tune.value_rows(name, 0, tensor.shape[0], to.values.data()));
    for (float& value : to.values) value = bf16_to_f32(f32_to_bf16(value));
  }
  if (tune.tied_head()) weights.erase(kHead);
  for (const auto& [name, matrix] : fitted) {
    Matrix& to = weights.at(name);
    const int64_t row_bytes = (to.columns + 7) / 8;
    std::vector<double> delta(to.values.size());
    for (const FittedLevel& level : matrix.levels)
      for (int64_t r = 0; r < to.rows; ++r) {
        const size_t at = level.alpha.size() == 1 ? 0 : static_cast<size_t>(r);
        add_signs(level.bits.data() + r * row_bytes, to.columns,
                  static_cast<double>(level.alpha[at]), delta.data() + r * to.columns);
      }
    if (!matrix.low_rank.empty()) {
      const int64_t rank =
          static_cast<int64_t>(matrix.low_rank.size()) / low_rank_row_bytes(to.columns, to.rows);
      ASSIGN_OR_RETURN(const AdapterFactors factors,
                       unpack_low_rank(matrix.low_rank.data(), rank, to.columns, to.rows));
      add_low_rank(factors, 0, to.rows, 1, delta.data());
    }
    for (size_t i = 0; i < delta.size(); ++i)
      to.values[i] = static_cast<float>(static_cast<double>(to.values[i]) + delta[i]);
  }
  return weights;
}

Status DistilledFitter::check_size(const Checkpoint& base, int64_t most) {
  int64_t weights = 0;
  for (const auto& [name, tensor] : base.tensors()) weights += tensor.shape.count();
  if (weights <= most) return {};
  return invalid_argument(
      fmt::format("{}: --distill computes on a processor with all weights in fp32, so it is for "
                  "models of up to "
                  "{} weights; this one has {}. --budget 2.0bit or --residual-rank come closer to "
                  "a fine-tune too",
                  base.path(), most, weights));
}

Result<std::unique_ptr<DistilledFitter>> DistilledFitter::make(
    const Checkpoint& base, const Tune& tune, std::unique_ptr<CalibratedFitter> closed,
    const std::vector<TokenSequence>& text, const DistillOptions& options) {
  RETURN_IF_ERROR(check_size(base));
  std::unique_ptr<DistilledFitter> made(new DistilledFitter(base, tune, std::move(closed)));
  for (int64_t layer = 0; layer < base.config().layers; ++layer) {
    ASSIGN_OR_RETURN(auto fitted, made->closed_->fit_layer(layer));
    made->fitted_.merge(fitted);
  }
  RETURN_IF_ERROR(made->closed_->finish().status());
  RETURN_IF_ERROR(made->distill(text, options));
  return made;
}

Status DistilledFitter::distill(const std::vector<TokenSequence>& text,
                                const DistillOptions& options) {
  ASSIGN_OR_RETURN(const Matrix states, closed_->tune_states(text));
  std::map<std::string, FittedMatrix> moved = fitted_;
  ASSIGN_OR_RETURN(PlainWeights weights, plain_weights(base_, tune_, moved));
  PlainTransformer model(base_.config(), weights, options.jobs);
  AlphaDescent descent(&moved, &weights, options.jobs);
  const std::vector<TextBatch> batches = batches_of(text);
  const std::vector<size_t> order = spread_order(batches.size());
  for (int step = 0; step < options.steps; ++step) {
    const TextBatch& batch = batches[order[static_cast<size_t>(step) % batches.size()]];
    if (static_cast<size_t>(step) < batches.size()) report_.tokens += batch.rows;
    const std::vector<TokenSequence> sequences(text.begin() + static_cast<int64_t>(batch.first),
                                               text.begin() + static_cast<int64_t>(batch.end));
    Matrix target(batch.rows, states.columns);
    std::copy_n(states.row(batch.row), target.values.size(), target.values.begin());
    Matrix by_logits;
    kl_divergence(model.logits(target), model.logits(model.forward(sequences)), &by_logits);
    model.backward(model.logits_back(by_logits),
                   [&](const std::string& weight, const Matrix& x, const Matrix& grad) {
                     descent.add_gradient(weight, x, grad);
                   });
    descent.step(options.rate * (options.steps - step) / options.steps);
    if (options.progress) options.progress(step + 1, options.steps);
  }
  report_.closed_form = closed_->report().heads.variant.kl;
  ASSIGN_OR_RETURN(const HeadScores scores, closed_->score(moved));
  report_.distilled = scores.variant.kl;
  report_.taken = report_.distilled < report_.closed_form;
  if (report_.taken) {
    fitted_ = std::move(moved);
    closed_->replace_scores(scores);
  }
  metadata_ = closed_->metadata();
  metadata_["distilled"] =
      fmt::format("{} steps, {}", options.steps, report_.taken ? "taken" : "not taken");
  return {};
}

Result<std::map<std::string, FittedMatrix>> DistilledFitter::fit_layer(int64_t layer) {
  std::map<std::string, FittedMatrix> of_layer;
  const std::string prefix = fmt::format("model.layers.{}.", layer);
  for (auto it = fitted_.lower_bound(prefix);
       it != fitted_.end() && it->first.starts_with(prefix);) {
    auto node = fitted_.extract(it++);
    of_layer.insert(std::move(node));
  }
  return of_layer;
}

}  // namespace deltad
