#include "calibrate/calibrated_fitter.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "calibrate/low_rank_fit.h"
#include "delta/sign_rows.h"
#include "delta/work_list.h"
#include "tensor/float16.h"

namespace deltad {
namespace {

// While signs are chosen, in mean energies of a column of X. Measured on text that the calibration
// text is not about: far more than is usual for weights, since a few directions hold most of X and
// signs that please these alone do harm elsewhere (docs/quality.md).
constexpr double kDamping = 5;
// Of low-rank parts; and how often these and the signs are fitted in turn, each to what the other
// leaves.
constexpr double kLowRankDamping = 20;
constexpr int kLowRankRounds = 4;
constexpr int64_t kMeasuredStrips = 12;  // one in so many is measured on held-out text
constexpr int kPlannedLevels = 3;        // the most that a budget gives a matrix

std::string kind_of(const std::string& weight) {
  const std::string module = weight.substr(0, weight.rfind('.'));
  return module.substr(module.rfind('.') + 1);
}

// ‖X·strip‖² over the rows of a strip.
double held_energy(const RowProducts& x, const float* strip, FitScratch* scratch,
                   const StripKernels& kernels) {
  uint16_t* tile = scratch->packed.of(x.columns() * kStripRows);
  kernels.pack_tile(x.columns(), strip, tile);
  scratch->step.resize(static_cast<size_t>(x.rows() * kStripRows));
  x.times(tile, kStripRows, scratch->step.data(), kStripRows, &scratch->product);
  std::array<double, kStripRows> sums;
  kernels.dot(1, x.rows(), scratch->step.data(), scratch->step.data(), sums.data());
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

Matrix as_matrix(const LayerInputs::Values& values, int64_t tokens) {
  Matrix out(tokens, values.columns);
  if (values.type == DType::kF32)
    std::copy_n(values.x.as<float>(), out.values.size(), out.values.begin());
  else
    std::transform(values.x.as<uint16_t>(), values.x.as<uint16_t>() + out.values.size(),
                   out.values.begin(), [](uint16_t v) { return bf16_to_f32(v); });
  return out;
}

}  // namespace

// A scratch from those that lie idle, for as long as this lives.
class CalibratedFitter::Scratch {
 public:
  explicit Scratch(const CalibratedFitter& owner) : owner_(owner) {
    MutexLock lock(owner_.mutex_);
    if (owner_.idle_scratch_.empty()) {
      scratch_ = std::make_unique<FitScratch>();
    } else {
      scratch_ = std::move(owner_.idle_scratch_.back());
      owner_.idle_scratch_.pop_back();
    }
  }
  ~Scratch() {
    MutexLock lock(owner_.mutex_);
    owner_.idle_scratch_.push_back(std::move(scratch_));
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  FitScratch* get() const { return scratch_.get(); }
  FitScratch* operator->() const { return scratch_.get(); }

 private:
  const CalibratedFitter& owner_;
  std::unique_ptr<FitScratch> scratch_;
};

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
  ASSIGN_OR_RETURN(made->isa_, choose_isa(""));
  ASSIGN_OR_RETURN(made->walk_, LayerWalk::make(base, tune, options.jobs));
  if (options.budget) {
    RETURN_IF_ERROR(made->check_budget());
    RETURN_IF_ERROR(made->plan());
  }
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

int64_t CalibratedFitter::low_rank(const std::string& weight) const {
  const Shape& shape = tune_.tensors().at(weight).shape;
  return std::min({options_.residual_rank, shape[0], shape[1]});
}

int64_t CalibratedFitter::low_rank_bytes(const std::vector<LevelCosts>& matrices) const {
  int64_t bytes = 0;
  for (const LevelCosts& costs : matrices) {
    const Shape& shape = tune_.tensors().at(costs.weight).shape;
    bytes += low_rank(costs.weight) * low_rank_row_bytes(shape[1], shape[0]);
  }
  return bytes;
}

int64_t CalibratedFitter::level_bytes(const Shape& matrix) const {
  return matrix[0] * ((matrix[1] + 7) / 8) + 4 * (options_.alpha_per_row ? matrix[0] : 1);
}

// Of matrices that are equal to the base's there is nothing in the file, so they count for nothing.
Result<std::vector<LevelCosts>> CalibratedFitter::changed_sizes() const {
  std::vector<LevelCosts> matrices;
  for (const auto& [name, tensor] : tune_.tensors())
    if (tensor.as_delta) matrices.push_back({name, level_bytes(tensor.shape), {}});
  std::vector<char> differs(matrices.size());
  RETURN_IF_ERROR(
      run_work_list(static_cast<int64_t>(matrices.size()), options_.jobs, [&](int64_t i) -> Status {
        const auto at = static_cast<size_t>(i);
        ASSIGN_OR_RETURN(differs[at], tune_.differs(matrices[at].weight));
        return {};
      }));
  std::vector<LevelCosts> changed;
  for (size_t i = 0; i < matrices.size(); ++i)
    if (differs[i]) changed.push_back(std::move(matrices[i]));
  return changed;
}

Status CalibratedFitter::useless_budget(const std::vector<LevelCosts>& matrices,
                                        const std::string& why) const {
  const int64_t factors = low_rank_bytes(matrices);
  return invalid_argument(fmt::format(
      "a budget of {} bytes{} {}", options_.budget->bytes_for(matrices),
      factors > 0 ? fmt::format(", of which low-rank parts take {},", factors) : "", why));
}

Status CalibratedFitter::check_budget() const {
  ASSIGN_OR_RETURN(const std::vector<LevelCosts> matrices, changed_sizes());
  if (matrices.empty()) return {};
  int64_t least = std::numeric_limits<int64_t>::max();
  for (const LevelCosts& costs : matrices) least = std::min(least, costs.level_bytes);
  if (options_.budget->bytes_for(matrices) - low_rank_bytes(matrices) >= least) return {};
  return useless_budget(
      matrices,
      fmt::format("has no room for any matrix's signs: the smallest matrix's take {}", least));
}

Status CalibratedFitter::plan() {
  ASSIGN_OR_RETURN(fit_, walk_->embed(WalkedModel::kTune, set_.fit));
  std::vector<LevelCosts> all;
  for (int64_t layer = 0; layer < base_.config().layers; ++layer) {
    RETURN_IF_ERROR(walk_->load_layer(layer));
    RETURN_IF_ERROR(capture());
    RETURN_IF_ERROR(fit_low_rank_parts({}));
    for (const std::string& name : walk_->changed_matrices()) {
      ASSIGN_OR_RETURN(LevelCosts costs, level_costs(name));
      all.push_back(std::move(costs));
    }
    inputs_ = {};
    if (options_.plan_progress) options_.plan_progress(layer + 1, base_.config().layers);
  }
  planned_ = plan_levels(all, options_.budget->bytes_for(all) - low_rank_bytes(all));
  if (all.empty() ||
      std::any_of(planned_.begin(), planned_.end(), [](const auto& p) { return p.second > 0; }))
    return {};
  return useless_budget(all, "gives no matrix signs: none take anything off the outputs' error");
}

// The plain signs of further levels leave those before them as they are, so one fit of the most
// levels tells the errors of fewer.
Result<LevelCosts> CalibratedFitter::level_costs(const std::string& name) const {
  const Shape& shape = tune_.tensors().at(name).shape;
  const FitInput& input = inputs_[static_cast<size_t>(input_of(name))];
  const int64_t step = fit_block_rows(input.tokens(), shape[1]);
  struct Sums {
    AlphaEquations shared;
    std::array<double, kPlannedLevels + 1> errors{};
  };
  const int64_t blocks = (shape[0] + step - 1) / step;
  std::vector<Sums> sums(static_cast<size_t>(blocks));
  const Status status = run_work_list(blocks, options_.jobs, [&](int64_t b) -> Status {
    const int64_t first = b * step, count = std::min(step, shape[0] - first);
    Sums& sum = sums[static_cast<size_t>(b)];
    std::vector<uint16_t> base;
    ASSIGN_OR_RETURN(const Rows rows, rows_of(name, first, count, &base));
    SignFitOptions options;
    options.levels = kPlannedLevels;
    const Scratch scratch(*this);
    RETURN_IF_ERROR(
        fit_checked(name, input, first, count, rows.left.data(), options, scratch.get()));
    for (const AlphaEquations& row : scratch->fit.equations) {
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
  const auto part = low_rank_parts_.find(name);
  const double energy = part == low_rank_parts_.end() ? total.shared.energy : part->second.energy;
  LevelCosts costs{name, level_bytes(shape), {}};
  for (int l = 0; l <= kPlannedLevels; ++l) {
    const double error = options_.alpha_per_row ? total.errors[static_cast<size_t>(l)]
                                                : total.shared.error(l, total.shared.solve(l));
    // As a share of what Δ does, times its size: every weight of Δ counts alike. Absolute errors,
    // or those beside the whole output, starve some kinds (docs/quality.md).
    costs.error.push_back(energy > 0 ? error * weights / energy : 0);
  }
  return costs;
}

Status CalibratedFitter::capture() {
  LayerInputs inputs;
  RETURN_IF_ERROR(walk_->advance(WalkedModel::kTune, &fit_, &inputs));
  return run_work_list(kLayerInputs, options_.jobs, [&](int64_t i) -> Status {
    LayerInputs::Values& values = inputs.of[static_cast<size_t>(i)];
    if (options_.residual_rank > 0)
      low_rank_inputs_[static_cast<size_t>(i)] = as_matrix(values, fit_.tokens);
    ASSIGN_OR_RETURN(inputs_[static_cast<size_t>(i)],
                     FitInput::make(isa_, values.x.data(), fit_.tokens, values.columns));
    values.x = Buffer();
    return {};
  });
}

Status CalibratedFitter::capture_held() {
  LayerInputs held;
  RETURN_IF_ERROR(walk_->advance(WalkedModel::kTune, &tune_held_, &held));
  return run_work_list(kLayerInputs, options_.jobs, [&](int64_t i) -> Status {
    LayerInputs::Values& values = held.of[static_cast<size_t>(i)];
    ASSIGN_OR_RETURN(held_inputs_[static_cast<size_t>(i)],
                     RowProducts::make(isa_, values.x.data(), tune_held_.tokens, values.columns,
                                       values.columns));
    values.x = Buffer();
    return {};
  });
}

Result<std::map<std::string, FittedMatrix>> CalibratedFitter::fit_layer(int64_t layer) {
  RETURN_IF_ERROR(walk_->load_layer(layer));
  RETURN_IF_ERROR(capture());
  RETURN_IF_ERROR(capture_held());
  walk_->release_tuned();
  RETURN_IF_ERROR(walk_->advance(WalkedModel::kBase, &base_held_, nullptr));
  const std::vector<std::string> names = walk_->changed_matrices();
  std::map<std::string, FittedMatrix> fitted;
  for (int round = 0; round < (options_.residual_rank > 0 ? kLowRankRounds : 1); ++round) {
    RETURN_IF_ERROR(fit_low_rank_parts(fitted));
    ASSIGN_OR_RETURN(fitted, fit_matrices(names));
  }
  for (const std::string& name : names) {
    Energy& energy = energies_[kind_of(name)];
    energy.error += held_.at(name).error;
    energy.delta += held_.at(name).delta;
  }
  low_rank_parts_.clear();
  low_rank_inputs_ = {};
  held_.clear();
  inputs_ = {};
  held_inputs_ = {};
  RETURN_IF_ERROR(walk_->set_variant(fitted));
  RETURN_IF_ERROR(walk_->advance(WalkedModel::kVariant, &variant_held_, nullptr));
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
    if (const auto part = low_rank_parts_.find(name); part != low_rank_parts_.end())
      matrix.low_rank = part->second.packed;
    jobs.push_back({name, shape, input_of(name), levels(name), {}, &matrix, &blocks[at]});
    const int64_t step =
        fit_block_rows(inputs_[static_cast<size_t>(input_of(name))].tokens(), shape[1]);
    for (int64_t first = 0; first < shape[0]; first += step) {
      work.emplace_back(at, blocks[at].size());
      blocks[at].push_back({first, std::min(step, shape[0] - first)});
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
    Energy& energy = held_[job.name] = {};
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

// Δ of rows [first, first+count), and W in bf16 beside it.
Result<std::vector<double>> CalibratedFitter::delta_of(const std::string& name, int64_t first,
                                                       int64_t count,
                                                       std::vector<uint16_t>* base) const {
  const int64_t columns = tune_.tensors().at(name).shape[1];
  base->resize(static_cast<size_t>(count * columns));
  std::vector<double> delta(base->size());
  RETURN_IF_ERROR(base_.read_rows_bf16(name, first, count, base->data()));
  RETURN_IF_ERROR(tune_.delta_rows(name, first, count, base->data(), delta.data()));
  return delta;
}

Result<CalibratedFitter::Rows> CalibratedFitter::rows_of(const std::string& name, int64_t first,
                                                         int64_t count,
                                                         std::vector<uint16_t>* base) const {
  Rows rows;
  ASSIGN_OR_RETURN(rows.left, delta_of(name, first, count, base));
  if (const auto part = low_rank_parts_.find(name); part != low_rank_parts_.end()) {
    rows.delta = rows.left;
    add_low_rank(part->second.factors, first, count, -1, rows.left.data());
  }
  return rows;
}

Status CalibratedFitter::fit_low_rank_parts(const std::map<std::string, FittedMatrix>& fitted) {
  if (options_.residual_rank == 0) return {};
  low_rank_parts_.clear();
  const std::vector<std::string> names = walk_->changed_matrices();
  std::vector<LowRankPart> parts(names.size());
  RETURN_IF_ERROR(
      run_work_list(static_cast<int64_t>(names.size()), options_.jobs, [&](int64_t i) -> Status {
        const std::string& name = names[static_cast<size_t>(i)];
        const auto signs = fitted.find(name);
        ASSIGN_OR_RETURN(
            parts[static_cast<size_t>(i)],
            low_rank_part(name, signs == fitted.end() ? nullptr : &signs->second.levels));
        return {};
      }));
  for (size_t i = 0; i < names.size(); ++i) low_rank_parts_[names[i]] = std::move(parts[i]);
  return {};
}

Result<CalibratedFitter::LowRankPart> CalibratedFitter::low_rank_part(
    const std::string& name, const std::vector<FittedLevel>* signs) const {
  const Shape& shape = tune_.tensors().at(name).shape;
  const int64_t columns = shape[1], row_bytes = (columns + 7) / 8, step = block_rows(shape);
  Matrix left(shape[0], columns);
  std::vector<uint16_t> base;
  for (int64_t first = 0; first < shape[0]; first += step) {
    const int64_t count = std::min(step, shape[0] - first);
    ASSIGN_OR_RETURN(std::vector<double> delta, delta_of(name, first, count, &base));
    for (int64_t r = 0; r < count; ++r) {
      double* row = delta.data() + r * columns;
      // The fit of signs looks for these too, but it comes later.
      if (!std::isfinite(row_sums(row, columns).squares)) return not_finite(name, first + r);
      for (size_t l = 0; signs != nullptr && l < signs->size(); ++l) {
        const FittedLevel& level = (*signs)[l];
        const size_t at = level.alpha.size() == 1 ? 0 : static_cast<size_t>(first + r);
        add_signs(level.bits.data() + (first + r) * row_bytes, columns,
                  -static_cast<double>(level.alpha[at]), row);
      }
    }
    std::transform(delta.begin(), delta.end(), left.row(first),
                   [](double v) { return static_cast<float>(v); });
  }
  const Matrix& x = low_rank_inputs_[static_cast<size_t>(input_of(name))];
  const Result<LowRankFit> fit = fit_low_rank(x, left, low_rank(name), kLowRankDamping);
  const auto failed = [&](const Status& status) {
    return status.in(fmt::format("{}: tensor '{}': its low-rank part", tune_.path(), name));
  };
  if (!fit.ok()) return failed(fit.status());
  LowRankPart part;
  part.energy = fit->energy;
  part.packed = pack_low_rank(fit->factors);
  Result<AdapterFactors> factors =
      unpack_low_rank(part.packed.data(), low_rank(name), columns, shape[0]);
  if (!factors.ok()) return failed(factors.status());
  part.factors = std::move(*factors);
  return part;
}

Status CalibratedFitter::not_finite(const std::string& name, int64_t row) const {
  return invalid_argument(
      fmt::format("{}: tensor '{}': row {} has a value that is not a finite number (or too large)",
                  tune_.path(), name, row));
}

Status CalibratedFitter::fit_checked(const std::string& name, const FitInput& input, int64_t first,
                                     int64_t count, const double* delta,
                                     const SignFitOptions& options, FitScratch* scratch) const {
  fit_rows(input, count, delta, options, scratch);
  if (scratch->fit.bad_row < 0) return {};
  return not_finite(name, first + scratch->fit.bad_row);
}

Status CalibratedFitter::add_means(const Job& job, JobBlock* block) const {
  const int64_t columns = job.shape[1];
  std::vector<uint16_t> base;
  ASSIGN_OR_RETURN(Rows rows, rows_of(job.name, block->first, block->count, &base));
  block->absolute = 0;
  for (int64_t r = 0; r < block->count; ++r) {
    double* row = rows.left.data() + r * columns;
    for (const float alpha : job.start) subtract_signs(row, columns, static_cast<double>(alpha));
    block->absolute += row_sums(row, columns).absolute;
  }
  return {};
}

Status CalibratedFitter::fit_block(const Job& job, JobBlock* block) const {
  const int64_t columns = job.shape[1], row_bytes = (columns + 7) / 8;
  std::vector<uint16_t> base;
  ASSIGN_OR_RETURN(const Rows rows, rows_of(job.name, block->first, block->count, &base));
  block->sums.base_squares = bf16_squares(base.data(), block->count * columns);
  SignFitOptions options;
  options.levels = job.levels;
  options.start = job.start;
  options.damping = kDamping;
  // Where rows share their α, signs that are best for a row's own are not for the shared one.
  options.sweeps = options_.alpha_per_row && job.levels > 0 ? options_.effort : 0;
  const Scratch scratch(*this);
  RETURN_IF_ERROR(fit_checked(job.name, inputs_[static_cast<size_t>(job.input)], block->first,
                              block->count, rows.left.data(), options, scratch.get()));
  const RowsFit& fit = scratch->fit;
  block->sums.zeros = fit.sums.zeros;
  block->sums.delta_squares = fit.sums.squares;
  if (!rows.delta.empty()) {  // these were of what its low-rank part leaves
    block->sums.zeros = count_zeros(rows.whole(), block->count * columns);
    block->sums.delta_squares = row_sums(rows.whole(), block->count * columns).squares;
  }
  for (size_t l = 0; l < fit.signs.size(); ++l) {
    FittedLevel& level = job.out->levels[l];
    for (int64_t strip = 0; strip < fit.strips(); ++strip) {
      const int64_t first = strip * kStripRows;
      strip_kernels(isa_).pack_bits(columns, fit.signs[l].data() + fit.strip_at(strip),
                                    std::min(kStripRows, block->count - first),
                                    level.bits.data() + (block->first + first) * row_bytes);
    }
    if (options_.alpha_per_row)
      std::copy_n(fit.alpha[l].begin(), block->count, level.alpha.begin() + block->first);
  }
  for (const AlphaEquations& row : fit.equations) block->equations.add(row);
  if (options_.alpha_per_row) measure(job, rows.whole(), scratch.get(), block);
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

// The fit that this α belongs to is made again: the signs are the same.
Status CalibratedFitter::measure_shared(const Job& job, JobBlock* block) const {
  std::vector<uint16_t> base;
  ASSIGN_OR_RETURN(const Rows rows, rows_of(job.name, block->first, block->count, &base));
  SignFitOptions options;
  options.levels = job.levels;
  options.start = job.start;
  const Scratch scratch(*this);
  RETURN_IF_ERROR(fit_checked(job.name, inputs_[static_cast<size_t>(job.input)], block->first,
                              block->count, rows.left.data(), options, scratch.get()));
  for (size_t l = 0; l < job.out->levels.size(); ++l)
    std::fill_n(scratch->fit.alpha[l].begin(), block->count, job.out->levels[l].alpha[0]);
  measure(job, rows.whole(), scratch.get(), block);
  return {};
}

// What compression leaves of Δ (whole); on held-out text of a few of the rows, which is enough for
// a mean.
void CalibratedFitter::measure(const Job& job, const double* whole, FitScratch* scratch,
                               JobBlock* block) const {
  const RowsFit& fit = scratch->fit;
  const StripKernels& kernels = strip_kernels(isa_);
  const RowProducts& held = held_inputs_[static_cast<size_t>(job.input)];
  std::vector<float>& left = scratch->strip;
  left.assign(static_cast<size_t>(fit.strip_columns * kStripRows), 0.0f);
  for (int64_t strip = 0; strip < fit.strips(); ++strip) {
    std::array<const float*, kMaxLevels> alpha{}, signs{};
    for (size_t l = 0; l < fit.signs.size(); ++l) {
      alpha[l] = fit.alpha[l].data() + strip * kStripRows;
      signs[l] = fit.signs[l].data() + fit.strip_at(strip);
    }
    const float* delta = fit.delta.data() + fit.strip_at(strip);
    block->sums.error_squares +=
        kernels.residual(fit.columns, job.levels, alpha.data(), delta, signs.data(), left.data());
    if ((block->first / kStripRows + strip) % kMeasuredStrips != 0) continue;
    block->held.error += held_energy(held, left.data(), scratch, kernels);
    const int64_t first = strip * kStripRows, count = std::min(kStripRows, block->count - first);
    kernels.load(whole + first * fit.columns, count, fit.columns, left.data());
    block->held.delta += held_energy(held, left.data(), scratch, kernels);
  }
}

}  // namespace deltad
