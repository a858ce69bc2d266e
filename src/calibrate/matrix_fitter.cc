#include "calibrate/matrix_fitter.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "delta/low_rank_part.h"
#include "delta/sign_rows.h"
#include "delta/work_list.h"

namespace deltad {
namespace {

// While signs are chosen, in mean energies of a column of X. Measured on text that the calibration
// text is not about: far more than is usual for weights, since a few directions hold most of X and
// signs that please these alone do harm elsewhere (docs/quality.md).
constexpr double kDamping = 5;
constexpr int64_t kMeasuredStrips = 12;  // one in so many is measured on held-out text

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
}  // namespace

// A scratch from those that lie idle, for as long as this lives.
class MatrixFitter::Scratch {
 public:
  explicit Scratch(const MatrixFitter& owner) : owner_(owner) {
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
  const MatrixFitter& owner_;
  std::unique_ptr<FitScratch> scratch_;
};

// Rows of a matrix that are fitted together, and their sums: kept apart, so that totals do not
// depend on the order of threads.
struct MatrixFitter::JobBlock {
  int64_t first, count;
  FittedMatrix sums = {};  // without levels
  double absolute = 0;
  OutputEnergy held = {};
  AlphaEquations equations = {};
};

// One matrix while it is fitted.
struct MatrixFitter::Job {
  std::string name;
  Shape shape;
  LayerInput input;
  const LowRankPart* part;  // null: none
  int levels, sweeps;
  std::vector<float> start;  // if rows share their α: the means that it begins with
  FittedMatrix* out;
  std::vector<JobBlock>* blocks;
};

void MatrixFitter::clear() {
  inputs_ = {};
  held_inputs_ = {};
  held_.clear();
}

Result<FittedMatrices> MatrixFitter::fit(const Levels& levels, const LowRankParts& parts,
                                         bool sweeps) {
  FittedMatrices fitted;
  std::vector<Job> jobs;
  std::vector<std::vector<JobBlock>> blocks(levels.size());
  std::vector<std::pair<size_t, size_t>> work;  // job, block
  for (const auto& [name, count] : levels) {
    const size_t at = jobs.size();
    const Shape& shape = rows_.shape(name);
    FittedMatrix& matrix = fitted[name];
    matrix.levels.resize(static_cast<size_t>(count));
    for (FittedLevel& level : matrix.levels) {
      level.bits.resize(static_cast<size_t>(shape[0] * ((shape[1] + 7) / 8)));
      level.alpha.resize(static_cast<size_t>(options_.alpha_per_row ? shape[0] : 1));
    }
    const LowRankPart* part = parts.find(name);
    if (part != nullptr) matrix.low_rank = part->packed;
    jobs.push_back({name,
                    shape,
                    input_of(name),
                    part,
                    count,
                    sweeps ? options_.sweeps : 0,
                    {},
                    &matrix,
                    &blocks[at]});
    const int64_t step = fit_block_rows(input(name).tokens(), shape[1]);
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
    RETURN_IF_ERROR(
        run([&](const Job& job, JobBlock* block) { return measure_shared(job, block); }));
  }
  for (const Job& job : jobs) {
    OutputEnergy& energy = held_[job.name] = {};
    for (const JobBlock& block : *job.blocks) {
      job.out->zeros += block.sums.zeros;
      job.out->delta_squares += block.sums.delta_squares;
      job.out->base_squares += block.sums.base_squares;
      job.out->error_squares += block.sums.error_squares;
      energy.add(block.held);
    }
  }
  return fitted;
}

// The plain signs of further levels leave those before them as they are, so one fit of the most
// levels tells the errors of fewer.
Result<MatrixFitter::LevelErrors> MatrixFitter::level_errors(const std::string& weight, int most,
                                                             const LowRankParts& parts) const {
  const Shape& shape = rows_.shape(weight);
  const FitInput& x = input(weight);
  const LowRankPart* part = parts.find(weight);
  const int64_t step = fit_block_rows(x.tokens(), shape[1]);
  struct Sums {
    AlphaEquations shared;
    std::vector<double> errors;
  };
  const int64_t blocks = (shape[0] + step - 1) / step;
  std::vector<Sums> sums(static_cast<size_t>(blocks));
  RETURN_IF_ERROR(run_work_list(blocks, options_.jobs, [&](int64_t b) -> Status {
    const int64_t first = b * step, count = std::min(step, shape[0] - first);
    Sums& sum = sums[static_cast<size_t>(b)];
    sum.errors.resize(static_cast<size_t>(most + 1));
    std::vector<uint16_t> base;
    ASSIGN_OR_RETURN(const Rows rows, rows_of(weight, part, first, count, &base));
    SignFitOptions options;
    options.levels = most;
    const Scratch scratch(*this);
    RETURN_IF_ERROR(fit_checked(weight, x, first, count, rows.left.data(), options, scratch.get()));
    for (const AlphaEquations& row : scratch->fit.equations) {
      sum.shared.add(row);
      for (int l = 0; l <= most; ++l)
        sum.errors[static_cast<size_t>(l)] += row.error(l, row.solve(l));
    }
    return {};
  }));
  AlphaEquations shared;
  LevelErrors out;
  out.error.resize(static_cast<size_t>(most + 1));
  for (const Sums& sum : sums) {
    shared.add(sum.shared);
    for (size_t l = 0; l < out.error.size(); ++l) out.error[l] += sum.errors[l];
  }
  out.energy = part != nullptr ? part->energy : shared.energy;
  for (int l = 0; l <= most && !options_.alpha_per_row; ++l)
    out.error[static_cast<size_t>(l)] = shared.error(l, shared.solve(l));
  return out;
}

Result<MatrixFitter::Rows> MatrixFitter::rows_of(const std::string& name, const LowRankPart* part,
                                                 int64_t first, int64_t count,
                                                 std::vector<uint16_t>* base) const {
  Rows rows;
  ASSIGN_OR_RETURN(rows.left, rows_.delta(name, first, count, base));
  if (part != nullptr) {
    rows.delta = rows.left;
    add_low_rank(part->factors, first, count, -1, rows.left.data());
  }
  return rows;
}

Status MatrixFitter::fit_checked(const std::string& name, const FitInput& input, int64_t first,
                                 int64_t count, const double* delta, const SignFitOptions& options,
                                 FitScratch* scratch) const {
  fit_rows(input, count, delta, options, scratch);
  if (scratch->fit.bad_row < 0) return {};
  return rows_.not_finite(name, first + scratch->fit.bad_row);
}

Status MatrixFitter::add_means(const Job& job, JobBlock* block) const {
  const int64_t columns = job.shape[1];
  std::vector<uint16_t> base;
  ASSIGN_OR_RETURN(Rows rows, rows_of(job.name, job.part, block->first, block->count, &base));
  block->absolute = 0;
  for (int64_t r = 0; r < block->count; ++r) {
    double* row = rows.left.data() + r * columns;
    for (const float alpha : job.start) subtract_signs(row, columns, static_cast<double>(alpha));
    block->absolute += row_sums(row, columns).absolute;
  }
  return {};
}

Status MatrixFitter::fit_block(const Job& job, JobBlock* block) const {
  const int64_t columns = job.shape[1], row_bytes = (columns + 7) / 8;
  std::vector<uint16_t> base;
  ASSIGN_OR_RETURN(const Rows rows, rows_of(job.name, job.part, block->first, block->count, &base));
  block->sums.base_squares = bf16_squares(base.data(), block->count * columns);
  SignFitOptions options;
  options.levels = job.levels;
  options.start = job.start;
  options.damping = kDamping;
  // Where rows share their α, signs that are best for a row's own are not for the shared one.
  options.sweeps = options_.alpha_per_row && job.levels > 0 ? job.sweeps : 0;
  const Scratch scratch(*this);
  RETURN_IF_ERROR(fit_checked(job.name, input(job.name), block->first, block->count,
                              rows.left.data(), options, scratch.get()));
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
void MatrixFitter::share_alpha(const Job& job) const {
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
Status MatrixFitter::measure_shared(const Job& job, JobBlock* block) const {
  std::vector<uint16_t> base;
  ASSIGN_OR_RETURN(const Rows rows, rows_of(job.name, job.part, block->first, block->count, &base));
  SignFitOptions options;
  options.levels = job.levels;
  options.start = job.start;
  const Scratch scratch(*this);
  RETURN_IF_ERROR(fit_checked(job.name, input(job.name), block->first, block->count,
                              rows.left.data(), options, scratch.get()));
  for (size_t l = 0; l < job.out->levels.size(); ++l)
    std::fill_n(scratch->fit.alpha[l].begin(), block->count, job.out->levels[l].alpha[0]);
  measure(job, rows.whole(), scratch.get(), block);
  return {};
}

// What compression leaves of Δ (whole); on held-out text of a few of the rows, which is enough for
// a mean.
void MatrixFitter::measure(const Job& job, const double* whole, FitScratch* scratch,
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
    if (held.rows() == 0 || (block->first / kStripRows + strip) % kMeasuredStrips != 0) continue;
    block->held.error += held_energy(held, left.data(), scratch, kernels);
    const int64_t first = strip * kStripRows, count = std::min(kStripRows, block->count - first);
    kernels.load(whole + first * fit.columns, count, fit.columns, left.data());
    block->held.delta += held_energy(held, left.data(), scratch, kernels);
  }
}
}  // namespace deltad
