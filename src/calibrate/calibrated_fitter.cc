#include "calibrate/calibrated_fitter.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "calibrate/fit_kernels.h"
#include "delta/sign_rows.h"
#include "delta/work_list.h"

namespace deltad {
namespace {

// Rows that are fitted together: enough for the products to run well, few enough that each thread
// finds blocks to take.
constexpr int64_t kFitRows = 192;
// While signs are chosen, in means of C's diagonal. Measured on text that the calibration text is
// not about: far more than is usual for weights, since a few directions hold most of C and signs
// that please these alone do harm elsewhere (docs/quality.md).
constexpr double kDamping = 5;
constexpr int kPlannedLevels = 3;  // the most that a budget gives a matrix

std::string kind_of(const std::string& weight) {
  const std::string module = weight.substr(0, weight.rfind('.'));
  return module.substr(module.rfind('.') + 1);
}

// signs [columns, rows] → bits of each row [rows, ⌈columns/8⌉]
void pack(const std::vector<float>& signs, int64_t rows, int64_t columns, uint8_t* bits) {
  const int64_t row_bytes = (columns + 7) / 8;
  std::fill_n(bits, rows * row_bytes, uint8_t{0});
  for (int64_t c = 0; c < columns; ++c)
    for (int64_t r = 0; r < rows; ++r)
      if (signs[static_cast<size_t>(c * rows + r)] > 0)
        bits[r * row_bytes + c / 8] |= static_cast<uint8_t>(1u << (c % 8));
}

// [rows, columns] → [columns, rows]
std::vector<float> by_column(const std::vector<double>& delta, int64_t rows, int64_t columns) {
  std::vector<float> out(delta.size());
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c)
      out[static_cast<size_t>(c * rows + r)] =
          static_cast<float>(delta[static_cast<size_t>(r * columns + c)]);
  return out;
}

// ‖X·e‖² over all rows of a block: x [tokens, columns], e [columns, rows].
double held_energy(const LayerInputs::Values& x, const std::vector<float>& e, int64_t rows) {
  const auto tokens = static_cast<int64_t>(x.x.size()) / x.columns;
  std::vector<float> y(static_cast<size_t>(tokens * rows));
  fit_kernels().multiply(tokens, rows, x.columns, x.x.data(), false, e.data(), false, y.data());
  double sum = 0;
  for (const float value : y) sum += static_cast<double>(value) * static_cast<double>(value);
  return sum;
}

// Fixed in length, so that it can stand in a file's header before it is known.
std::string number(double value) { return fmt::format("{:9.3e}", std::clamp(value, 0.0, 9e9)); }

}  // namespace

// Rows of a matrix that are fitted together, and their sums: kept apart, so that totals do not
// depend on the order of threads.
struct CalibratedFitter::JobBlock {
  int64_t first, count;
  FittedMatrix sums = {};  // without levels
  double absolute = 0;
  Energy held = {};
  AlphaEquations equations = {};
};

// One matrix while it is fitted.
struct CalibratedFitter::Job {
  std::string name;
  Shape shape;
  LayerInput input;
  int levels;
  std::vector<float> start;  // if rows share their α: the means that it begins with
  FittedMatrix* out;
  std::vector<JobBlock>* blocks;
};

Result<std::unique_ptr<CalibratedFitter>> CalibratedFitter::make(
    const Checkpoint& base, const Tune& tune, const CalibrationSet& set,
    const CalibrationOptions& options) {
  std::unique_ptr<CalibratedFitter> made(new CalibratedFitter(base, tune, set, options));
  ASSIGN_OR_RETURN(made->walk_, LayerWalk::make(base, tune, options.jobs));
  if (options.budget) RETURN_IF_ERROR(made->plan());
  ASSIGN_OR_RETURN(made->fit_, made->walk_->embed(WalkedModel::kTune, set.fit));
  ASSIGN_OR_RETURN(made->base_held_, made->walk_->embed(WalkedModel::kBase, set.held));
  ASSIGN_OR_RETURN(made->tune_held_, made->walk_->embed(WalkedModel::kTune, set.held));
  ASSIGN_OR_RETURN(made->variant_held_, made->walk_->embed(WalkedModel::kVariant, set.held));
  for (const auto& [name, tensor] : tune.tensors())
    if (tensor.as_delta &&
        std::find(made->kinds_.begin(), made->kinds_.end(), kind_of(name)) == made->kinds_.end())
      made->kinds_.push_back(kind_of(name));
  made->report_.fit_tokens = set.fit_tokens();
  made->report_.held_tokens = set.held_tokens();
  return made;
}

int CalibratedFitter::levels(const std::string& weight) const {
  return options_.budget ? planned_.at(weight) : options_.levels;
}

Status CalibratedFitter::plan() {
  ASSIGN_OR_RETURN(fit_, walk_->embed(WalkedModel::kTune, set_.fit));
  std::vector<LevelCosts> all;
  for (int64_t layer = 0; layer < base_.config().layers; ++layer) {
    RETURN_IF_ERROR(walk_->load_layer(layer));
    RETURN_IF_ERROR(capture());
    for (const std::string& name : walk_->changed_matrices()) {
      ASSIGN_OR_RETURN(LevelCosts costs, level_costs(name));
      all.push_back(std::move(costs));
    }
  }
  const int64_t bytes = options_.budget->bytes_for(all);
  planned_ = plan_levels(all, bytes);
  if (std::all_of(planned_.begin(), planned_.end(), [](const auto& p) { return p.second == 0; }))
    return invalid_argument(
        fmt::format("a budget of {} bytes has no room for any matrix's signs", bytes));
  return {};
}

// The plain signs of further levels leave those before them as they are, so one fit of the most
// levels tells the errors of fewer.
Result<LevelCosts> CalibratedFitter::level_costs(const std::string& name) const {
  const Shape& shape = tune_.tensors().at(name).shape;
  const GramMatrix& gram = grams_[static_cast<size_t>(input_of(name))];
  struct Sums {
    AlphaEquations shared;
    std::array<double, kPlannedLevels + 1> errors{};
  };
  const int64_t blocks = (shape[0] + kFitRows - 1) / kFitRows;
  std::vector<Sums> sums(static_cast<size_t>(blocks));
  const Status status = run_work_list(blocks, options_.jobs, [&](int64_t b) -> Status {
    const int64_t first = b * kFitRows, count = std::min(kFitRows, shape[0] - first);
    Sums& sum = sums[static_cast<size_t>(b)];
    std::vector<uint16_t> base;
    ASSIGN_OR_RETURN(const std::vector<double> delta, delta_of(name, first, count, &base));
    SignFitOptions options;
    options.levels = kPlannedLevels;
    for (const AlphaEquations& row : fit_rows(gram, count, delta.data(), options).equations) {
      sum.shared.add(row);
      for (int l = 0; l <= kPlannedLevels; ++l)
        sum.errors[static_cast<size_t>(l)] += row.error(l, row.solve(l));
    }
    return {};
  });
  RETURN_IF_ERROR(status);
  Sums total;
  for (const Sums& sum : sums) {
    total.shared.add(sum.shared);
    for (size_t l = 0; l < sum.errors.size(); ++l) total.errors[l] += sum.errors[l];
  }
  const auto weights = static_cast<double>(shape.count());
  LevelCosts costs{
      name, shape[0] * ((shape[1] + 7) / 8) + 4 * (options_.alpha_per_row ? shape[0] : 1), {}};
  for (int l = 0; l <= kPlannedLevels; ++l) {
    const double error = options_.alpha_per_row ? total.errors[static_cast<size_t>(l)]
                                                : total.shared.error(l, total.shared.solve(l));
    // As a share of what Δ does, times its size: every weight of Δ counts alike. Absolute errors,
    // or those beside the whole output, starve some kinds (docs/quality.md).
    costs.error.push_back(total.shared.energy > 0 ? error * weights / total.shared.energy : 0);
  }
  return costs;
}

Status CalibratedFitter::capture() {
  LayerInputs inputs;
  walk_->advance(WalkedModel::kTune, &fit_, &inputs);
  for (size_t i = 0; i < grams_.size(); ++i) {
    LayerInputs::Values& values = inputs.of[i];
    grams_[i] = gram_matrix(values.x.data(), fit_.tokens, values.columns, options_.jobs);
    values.x = {};
  }
  return {};
}

Result<std::map<std::string, FittedMatrix>> CalibratedFitter::fit_layer(int64_t layer) {
  RETURN_IF_ERROR(walk_->load_layer(layer));
  RETURN_IF_ERROR(capture());
  walk_->advance(WalkedModel::kTune, &tune_held_, &held_inputs_);
  walk_->advance(WalkedModel::kBase, &base_held_, nullptr);
  ASSIGN_OR_RETURN(auto fitted, fit_matrices(walk_->changed_matrices()));
  RETURN_IF_ERROR(walk_->set_variant(fitted));
  walk_->advance(WalkedModel::kVariant, &variant_held_, nullptr);
  return fitted;
}

Result<std::map<std::string, FittedMatrix>> CalibratedFitter::fit_matrices(
    const std::vector<std::string>& names) {
  std::map<std::string, FittedMatrix> fitted;
  std::vector<Job> jobs;
  std::vector<std::vector<JobBlock>> blocks(names.size());
  std::vector<std::pair<size_t, size_t>> work;  // job, block
  for (const std::string& name : names) {
    const size_t at = jobs.size();
    const Shape& shape = tune_.tensors().at(name).shape;
    FittedMatrix& matrix = fitted[name];
    matrix.levels.resize(static_cast<size_t>(levels(name)));
    for (FittedLevel& level : matrix.levels) {
      level.bits.resize(static_cast<size_t>(shape[0] * ((shape[1] + 7) / 8)));
      level.alpha.resize(static_cast<size_t>(options_.alpha_per_row ? shape[0] : 1));
    }
    jobs.push_back({name, shape, input_of(name), levels(name), {}, &matrix, &blocks[at]});
    for (int64_t first = 0; first < shape[0]; first += kFitRows) {
      work.emplace_back(at, blocks[at].size());
      blocks[at].push_back({first, std::min(kFitRows, shape[0] - first)});
    }
  }
  const auto run = [&](auto visit) {
    return run_work_list(static_cast<int64_t>(work.size()), options_.jobs, [&](int64_t i) {
      const auto& [job, block] = work[static_cast<size_t>(i)];
      return visit(jobs[job], &blocks[job][block]);
    });
  };
  if (!options_.alpha_per_row) {
    // The means of a level are over the whole matrix of what the levels before it leave.
    int most = 0;
    for (const Job& job : jobs) most = std::max(most, job.levels);
    for (int level = 0; level < most; ++level) {
      RETURN_IF_ERROR(run([&](const Job& job, JobBlock* block) { return add_means(job, block); }));
      for (size_t j = 0; j < jobs.size(); ++j) {
        if (level >= jobs[j].levels) continue;
        double absolute = 0;
        for (const JobBlock& block : blocks[j]) absolute += block.absolute;
        jobs[j].start.push_back(
            static_cast<float>(absolute / static_cast<double>(jobs[j].shape.count())));
      }
    }
  }
  RETURN_IF_ERROR(run([&](const Job& job, JobBlock* block) { return fit_block(job, block); }));
  if (!options_.alpha_per_row) {
    for (const Job& job : jobs) share_alpha(job);
    RETURN_IF_ERROR(run([&](const Job& job, JobBlock* block) {
      return job.levels == 0 ? Status() : measure_shared(job, block);
    }));
  }
  for (const Job& job : jobs) {
    Energy& energy = energies_[kind_of(job.name)];
    for (const JobBlock& block : *job.blocks) {
      job.out->zeros += block.sums.zeros;
      job.out->delta_squares += block.sums.delta_squares;
      job.out->base_squares += block.sums.base_squares;
      job.out->error_squares += block.sums.error_squares;
      energy.error += block.held.error;
      energy.delta += block.held.delta;
    }
  }
  return fitted;
}

// Δ of rows [first, first+count), checked, and W in bf16 beside it.
Result<std::vector<double>> CalibratedFitter::delta_of(const std::string& name, int64_t first,
                                                       int64_t count,
                                                       std::vector<uint16_t>* base) const {
  const int64_t columns = tune_.tensors().at(name).shape[1];
  base->resize(static_cast<size_t>(count * columns));
  std::vector<double> delta(base->size());
  RETURN_IF_ERROR(base_.read_rows_bf16(name, first, count, base->data()));
  RETURN_IF_ERROR(tune_.delta_rows(name, first, count, base->data(), delta.data()));
  for (int64_t r = 0; r < count; ++r) {
    const double sum = row_sums(delta.data() + r * columns, columns).absolute;
    if (!std::isfinite(static_cast<float>(sum)))
      return invalid_argument(fmt::format(
          "{}: tensor '{}': row {} has a value that is not a finite number (or too large)",
          tune_.path(), name, first + r));
  }
  return delta;
}

Status CalibratedFitter::add_means(const Job& job, JobBlock* block) const {
  const int64_t columns = job.shape[1];
  std::vector<uint16_t> base;
  ASSIGN_OR_RETURN(std::vector<double> delta,
                   delta_of(job.name, block->first, block->count, &base));
  block->absolute = 0;
  for (int64_t r = 0; r < block->count; ++r) {
    double* row = delta.data() + r * columns;
    for (const float alpha : job.start) subtract_signs(row, columns, static_cast<double>(alpha));
    block->absolute += row_sums(row, columns).absolute;
  }
  return {};
}

Status CalibratedFitter::fit_block(const Job& job, JobBlock* block) const {
  const int64_t columns = job.shape[1], row_bytes = (columns + 7) / 8;
  std::vector<uint16_t> base;
  ASSIGN_OR_RETURN(const std::vector<double> delta,
                   delta_of(job.name, block->first, block->count, &base));
  block->sums.zeros = count_zeros(delta.data(), block->count * columns);
  block->sums.delta_squares = row_sums(delta.data(), block->count * columns).squares;
  block->sums.base_squares = bf16_squares(base.data(), block->count * columns);
  if (job.levels == 0) {
    const std::vector<float> left = by_column(delta, block->count, columns);
    measure(job, left, left, block);
    return {};
  }
  SignFitOptions options;
  options.levels = job.levels;
  options.start = job.start;
  options.damping = kDamping;
  // Where rows share their α, signs that are best for a row's own are not for the shared one.
  options.sweeps = options_.alpha_per_row ? options_.effort : 0;
  const RowsFit fit =
      fit_rows(grams_[static_cast<size_t>(job.input)], block->count, delta.data(), options);
  for (size_t l = 0; l < fit.signs.size(); ++l) {
    FittedLevel& level = job.out->levels[l];
    pack(fit.signs[l], block->count, columns, level.bits.data() + block->first * row_bytes);
    if (options_.alpha_per_row)
      std::copy(fit.alpha[l].begin(), fit.alpha[l].end(), level.alpha.begin() + block->first);
  }
  for (const AlphaEquations& row : fit.equations) block->equations.add(row);
  if (options_.alpha_per_row) measure(job, fit.delta, fit.residual(), block);
  return {};
}

// One α for all rows of a matrix.
void CalibratedFitter::share_alpha(const Job& job) const {
  AlphaEquations all;
  for (const JobBlock& block : *job.blocks) all.add(block.equations);
  AlphaEquations::PerLevel means{}, best = all.solve(job.levels);
  for (size_t l = 0; l < job.start.size(); ++l) {
    means[l] = static_cast<double>(job.start[l]);
    best[l] = static_cast<double>(static_cast<float>(best[l]));
  }
  if (!(all.error(job.levels, best) < all.error(job.levels, means))) best = means;
  for (size_t l = 0; l < job.start.size(); ++l)
    job.out->levels[l].alpha[0] = static_cast<float>(best[l]);
}

Status CalibratedFitter::measure_shared(const Job& job, JobBlock* block) const {
  const int64_t columns = job.shape[1], row_bytes = (columns + 7) / 8;
  std::vector<uint16_t> base;
  ASSIGN_OR_RETURN(std::vector<double> delta,
                   delta_of(job.name, block->first, block->count, &base));
  const std::vector<float> whole = by_column(delta, block->count, columns);
  for (const FittedLevel& level : job.out->levels)
    for (int64_t r = 0; r < block->count; ++r)
      add_signs(level.bits.data() + (block->first + r) * row_bytes, columns,
                -static_cast<double>(level.alpha[0]), delta.data() + r * columns);
  measure(job, whole, by_column(delta, block->count, columns), block);
  return {};
}

// delta and left, what compression leaves of it: [columns, rows].
void CalibratedFitter::measure(const Job& job, const std::vector<float>& delta,
                               const std::vector<float>& left, JobBlock* block) const {
  for (const float value : left)
    block->sums.error_squares += static_cast<double>(value) * static_cast<double>(value);
  const LayerInputs::Values& x = held_inputs_.of[static_cast<size_t>(job.input)];
  block->held = {held_energy(x, left, block->count), held_energy(x, delta, block->count)};
}

std::map<std::string, std::string> CalibratedFitter::metadata_of(
    const CalibrationReport& report) const {
  std::string errors;
  for (const auto& [kind, error] : report.output_errors)
    errors += fmt::format("{}{} {}", errors.empty() ? "" : ", ", kind, number(error));
  return {{"calibration", options_.source},
          {"calibration_tokens", std::to_string(report.fit_tokens)},
          {"held_out_tokens", std::to_string(report.held_tokens)},
          {"kl", number(report.heads.variant.kl)},
          {"kl_base", number(report.heads.base.kl)},
          {"top1", number(report.heads.variant.top1)},
          {"top1_base", number(report.heads.base.top1)},
          {"output_error", errors}};
}

std::map<std::string, std::string> CalibratedFitter::metadata() const {
  CalibrationReport blank = report_;
  blank.output_errors.clear();
  for (const std::string& kind : kinds_) blank.output_errors.emplace_back(kind, 0);
  return metadata_of(blank);
}

Result<std::map<std::string, std::string>> CalibratedFitter::finish() {
  for (const std::string& kind : kinds_) {
    const Energy& energy = energies_[kind];
    report_.output_errors.emplace_back(
        kind, energy.delta > 0 ? std::sqrt(energy.error / energy.delta) : 0);
  }
  ASSIGN_OR_RETURN(const std::vector<float> of_base,
                   walk_->final_norm(WalkedModel::kBase, base_held_));
  ASSIGN_OR_RETURN(const std::vector<float> of_tune,
                   walk_->final_norm(WalkedModel::kTune, tune_held_));
  ASSIGN_OR_RETURN(const std::vector<float> of_variant,
                   walk_->final_norm(WalkedModel::kVariant, variant_held_));
  ASSIGN_OR_RETURN(report_.heads,
                   score_heads(base_, tune_, of_base, of_tune, of_variant, options_.jobs));
  return metadata_of(report_);
}

}  // namespace deltad
