#include "calibrate/sign_fit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <utility>

namespace deltad {
namespace {

constexpr double kTinyPivot = 1e-7;  // of a level's own energy: what is left of it is rounding
constexpr int64_t kProductBytes =
    384 << 10;                          // of one [tokens, rows] array: three fit in a core's cache
constexpr int64_t kRowBytes = 1 << 20;  // of one [rows, columns] array
constexpr int64_t kMostRows = 192;

class Fit {
 public:
  Fit(const FitInput& input, const SignFitOptions& options, FitScratch* scratch)
      : input_(input),
        options_(options),
        s_(*scratch),
        fit_(scratch->fit),
        kernels_(strip_kernels(input.isa())),
        levels_(static_cast<size_t>(options.levels)),
        damping_(static_cast<float>(options.damping * input.mean_energy())) {}

  void run(int64_t rows, const double* delta) {
    fit_.rows = rows;
    fit_.columns = input_.columns();
    fit_.strip_columns = input_.padded_columns();
    if (!load(delta)) return;
    begin();
    times_strips(fit_.delta, &s_.of_delta);
    s_.of_signs.resize(levels_);
    for (size_t l = 0; l < levels_; ++l) times_strips(fit_.signs[l], &s_.of_signs[l]);
    std::vector<AlphaEquations> normal = normal_equations(s_.of_signs);
    take_plain(normal);
    offer(normal, nullptr);
    for (int sweep = 0; sweep < options_.sweeps; ++sweep) {
      s_.trial = fit_.signs;
      if (!this->sweep()) break;
      normal = normal_equations(s_.of_trial);
      if (!offer(normal, &s_.trial)) break;
    }
  }

 private:
  int64_t strips() const { return fit_.strips(); }
  int64_t padded_rows() const { return strips() * kStripRows; }
  size_t values() const { return fit_.strip_at(strips()); }
  size_t products() const { return static_cast<size_t>(input_.tokens() * padded_rows()); }

  bool load(const double* delta) {
    fit_.delta.resize(values());
    fit_.sums = {};
    fit_.bad_row = -1;
    for (int64_t strip = 0; strip < strips(); ++strip) {
      const int64_t first = strip * kStripRows, count = std::min(kStripRows, fit_.rows - first);
      float* to = fit_.delta.data() + fit_.strip_at(strip);
      const StripSums sums = kernels_.load(delta + first * fit_.columns, count, fit_.columns, to);
      std::fill(to + fit_.columns * kStripRows, to + fit_.strip_columns * kStripRows, 0.0f);
      fit_.sums.zeros += sums.zeros;
      fit_.sums.squares += sums.squares;
      if (!sums.finite) {
        fit_.bad_row = first + bad_row(delta + first * fit_.columns, count);
        return false;
      }
    }
    return true;
  }

  int64_t bad_row(const double* delta, int64_t count) const {
    for (int64_t i = 0; i < count * fit_.columns; ++i)
      if (!(std::fabs(delta[i]) <= 1e30)) return i / fit_.columns;
    return 0;
  }

  // The plain form: signs of what is left, means of its absolute values.
  void begin() {
    fit_.signs.resize(levels_);
    fit_.alpha.resize(levels_);
    std::vector<float>& left = s_.strip;
    left.resize(static_cast<size_t>(fit_.strip_columns * kStripRows));
    for (size_t l = 0; l < levels_; ++l) {
      fit_.signs[l].resize(values());
      fit_.alpha[l].assign(static_cast<size_t>(padded_rows()), 0.0f);
      if (!options_.start.empty()) std::fill_n(fit_.alpha[l].begin(), fit_.rows, options_.start[l]);
    }
    for (int64_t strip = 0; strip < strips(); ++strip) {
      const size_t at = fit_.strip_at(strip);
      std::copy_n(fit_.delta.data() + at, left.size(), left.data());
      for (size_t l = 0; l < levels_; ++l) {
        float* signs = fit_.signs[l].data() + at;
        kernels_.plain_level(fit_.columns, left.data(), signs,
                             fit_.alpha[l].data() + strip * kStripRows, !options_.start.empty());
        std::fill(signs + fit_.columns * kStripRows, signs + fit_.strip_columns * kStripRows, 1.0f);
      }
    }
  }

  // out [tokens, rows] = X · strips
  void times_strips(const std::vector<float>& strips_of, std::vector<float>* out) {
    uint16_t* packed = s_.packed.of(static_cast<int64_t>(values()));
    for (int64_t strip = 0; strip < strips(); ++strip)
      kernels_.pack_tile(fit_.strip_columns, strips_of.data() + fit_.strip_at(strip),
                         packed + fit_.strip_at(strip));
    out->resize(products());
    input_.whole().times(packed, padded_rows(), out->data(), padded_rows(), &s_.product);
  }

  std::vector<AlphaEquations> normal_equations(const std::vector<std::vector<float>>& of_signs) {
    std::vector<AlphaEquations> normal(static_cast<size_t>(fit_.rows));
    std::vector<double> sums(static_cast<size_t>(padded_rows()));
    const auto add = [&](const std::vector<float>& x, const std::vector<float>& y, auto place) {
      kernels_.dot(strips(), input_.tokens(), x.data(), y.data(), sums.data());
      for (size_t r = 0; r < normal.size(); ++r) place(&normal[r]) = sums[r];
    };
    add(s_.of_delta, s_.of_delta, [](AlphaEquations* n) -> double& { return n->energy; });
    for (size_t x = 0; x < levels_; ++x) {
      add(of_signs[x], s_.of_delta, [x](AlphaEquations* n) -> double& { return n->right[x]; });
      for (size_t y = 0; y <= x; ++y) {
        add(of_signs[x], of_signs[y],
            [x, y](AlphaEquations* n) -> double& { return n->gram[x][y]; });
        for (AlphaEquations& n : normal) n.gram[y][x] = n.gram[x][y];
      }
    }
    return normal;
  }

  void take_plain(const std::vector<AlphaEquations>& normal) {
    fit_.equations = normal;
    fit_.plain_error.clear();
    for (size_t r = 0; r < normal.size(); ++r) {
      AlphaEquations::PerLevel alpha{};
      for (size_t l = 0; l < levels_; ++l) alpha[l] = static_cast<double>(fit_.alpha[l][r]);
      fit_.plain_error.push_back(normal[r].error(options_.levels, alpha));
    }
    fit_.error = fit_.plain_error;
  }

  // Fits α to these signs (null: those that it has), and takes the rows that get better by them.
  // False if none does.
  bool offer(const std::vector<AlphaEquations>& normal, std::vector<std::vector<float>>* signs) {
    bool any = false;
    for (int64_t r = 0; r < fit_.rows; ++r) {
      const auto at = static_cast<size_t>(r);
      AlphaEquations::PerLevel alpha = normal[at].solve(options_.levels);
      for (double& a : alpha) a = static_cast<double>(static_cast<float>(a));
      const double error = normal[at].error(options_.levels, alpha);
      if (!(error < fit_.error[at])) {
        if (signs != nullptr) keep(r, signs);
        continue;
      }
      any = true;
      fit_.error[at] = error;
      fit_.equations[at] = normal[at];
      for (size_t l = 0; l < levels_; ++l) fit_.alpha[l][at] = static_cast<float>(alpha[l]);
    }
    if (signs == nullptr) return any;
    std::swap(fit_.signs, *signs);
    std::swap(s_.of_signs, s_.of_trial);
    return any;
  }

  // A row's old signs and their products take the place of the new ones.
  void keep(int64_t row, std::vector<std::vector<float>>* signs) {
    for (size_t l = 0; l < levels_; ++l) {
      for (int64_t c = 0; c < fit_.columns; ++c)
        (*signs)[l][fit_.at(row, c)] = fit_.signs[l][fit_.at(row, c)];
      for (int64_t t = 0; t < input_.tokens(); ++t) {
        const auto at = static_cast<size_t>(t * padded_rows() + row);
        s_.of_trial[l][at] = s_.of_signs[l][at];
      }
    }
  }

  // One pass over the columns, on the signs of the trial. False if no sign changed.
  bool sweep() {
    const int64_t n = padded_rows(), tokens = input_.tokens();
    s_.scale.assign(static_cast<size_t>(n), 0.0f);
    s_.left = s_.of_delta;
    s_.tiles.of(input_.tokens() * n);
    for (size_t l = 0; l < levels_; ++l) {
      for (size_t r = 0; r < s_.scale.size(); ++r)
        s_.scale[r] = std::max(s_.scale[r], std::fabs(fit_.alpha[l][r]));
      kernels_.subtract(strips(), tokens, fit_.alpha[l].data(), s_.of_signs[l].data(),
                        s_.left.data(), s_.tiles.data());
    }
    s_.gradient.resize(static_cast<size_t>(kSweepColumns * n));
    s_.moved.of(kSweepColumns * n);
    s_.step.resize(products());
    bool changed = false;
    for (size_t b = 0; b < input_.blocks().size(); ++b) {
      const FitInput::Block& block = input_.blocks()[b];
      block.x_transposed.times(s_.tiles.data(), n, s_.gradient.data(), n, &s_.product);
      if (!choose(block, static_cast<int64_t>(b) * kSweepColumns)) continue;
      changed = true;
      block.x.times(s_.moved.data(), n, s_.step.data(), n, &s_.product);
      kernels_.subtract(strips(), tokens, s_.scale.data(), s_.step.data(), s_.left.data(),
                        s_.tiles.data());
    }
    if (changed) trial_products();
    return changed;
  }

  bool choose(const FitInput::Block& block, int64_t first) {
    SweepStep step{};
    step.strips = strips();
    step.columns = std::min(kSweepColumns, fit_.columns - first);
    step.gram = block.gram.data();
    step.damping = damping_;
    step.gradient = s_.gradient.data();
    step.levels = options_.levels;
    step.scale = s_.scale.data();
    step.strip_values = static_cast<int64_t>(fit_.strip_at(1));
    step.delta = fit_.delta.data() + first * kStripRows;
    for (size_t l = 0; l < levels_; ++l) {
      step.alpha[l] = fit_.alpha[l].data();
      step.signs[l] = s_.trial[l].data() + first * kStripRows;
    }
    step.moved = s_.moved.data();
    return kernels_.sweep(step);
  }

  // X·s of the trial. Of one level it follows from what is left.
  void trial_products() {
    s_.of_trial.resize(levels_);
    if (levels_ > 1) {
      for (size_t l = 0; l < levels_; ++l) times_strips(s_.trial[l], &s_.of_trial[l]);
      return;
    }
    std::vector<float>& inverse = s_.scale;
    for (size_t r = 0; r < inverse.size(); ++r)
      inverse[r] = fit_.alpha[0][r] != 0 ? 1.0f / fit_.alpha[0][r] : 0.0f;
    s_.of_trial[0].resize(products());
    kernels_.difference(strips(), input_.tokens(), inverse.data(), s_.of_delta.data(),
                        s_.left.data(), s_.of_trial[0].data());
  }

  const FitInput& input_;
  const SignFitOptions& options_;
  FitScratch& s_;
  RowsFit& fit_;
  const StripKernels& kernels_;
  const size_t levels_;
  const float damping_;
};

}  // namespace

int64_t fit_block_rows(int64_t tokens, int64_t columns) {
  constexpr auto kSize = static_cast<int64_t>(sizeof(float));
  const int64_t rows = std::min(kProductBytes / (kSize * tokens), kRowBytes / (kSize * columns));
  return std::clamp(rows / kStripRows * kStripRows, kStripRows, kMostRows);
}

void AlphaEquations::add(const AlphaEquations& other) {
  for (size_t x = 0; x < right.size(); ++x) {
    right[x] += other.right[x];
    for (size_t y = 0; y < right.size(); ++y) gram[x][y] += other.gram[x][y];
  }
  energy += other.energy;
}

// Elimination in place.
AlphaEquations::PerLevel AlphaEquations::solve(int levels) const {
  AlphaEquations left = *this;
  const auto n = static_cast<size_t>(levels);
  std::array<bool, kMaxLevels> used{};
  PerLevel alpha{};
  for (size_t p = 0; p < n; ++p) {
    for (size_t q = 0; q < p; ++q) {
      if (!used[q]) continue;
      const double factor = left.gram[p][q] / left.gram[q][q];
      for (size_t c = q; c < n; ++c) left.gram[p][c] -= factor * left.gram[q][c];
      left.right[p] -= factor * left.right[q];
    }
    used[p] = left.gram[p][p] > kTinyPivot * gram[p][p] && left.gram[p][p] > 0;
  }
  for (size_t p = n; p-- > 0;) {
    if (!used[p]) continue;
    double value = left.right[p];
    for (size_t c = p + 1; c < n; ++c) value -= left.gram[p][c] * alpha[c];
    alpha[p] = value / left.gram[p][p];
  }
  return alpha;
}

double AlphaEquations::error(int levels, const PerLevel& alpha) const {
  double error = energy;
  const auto n = static_cast<size_t>(levels);
  for (size_t x = 0; x < n; ++x) {
    error -= 2 * alpha[x] * right[x];
    for (size_t y = 0; y < n; ++y) error += alpha[x] * alpha[y] * gram[x][y];
  }
  return std::max(0.0, error);
}

void fit_rows(const FitInput& input, int64_t rows, const double* delta,
              const SignFitOptions& options, FitScratch* scratch) {
  Fit(input, options, scratch).run(rows, delta);
}

}  // namespace deltad
