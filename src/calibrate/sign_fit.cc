#include "calibrate/sign_fit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <new>
#include <utility>

#include "backend/backend.h"
#include "calibrate/fit_kernels.h"
#include "delta/sign_rows.h"
#include "delta/work_list.h"

namespace deltad {
namespace {

constexpr int64_t kColumnBlock = 32;  // columns of a sweep between two updates of all that follow
constexpr double kTinyPivot = 1e-7;   // of a level's own energy: what is left of it is rounding

class Fit {
 public:
  Fit(const GramMatrix& gram, int64_t rows, const SignFitOptions& options)
      : gram_(gram), options_(options), levels_(static_cast<size_t>(options.levels)) {
    fit_.rows = rows;
    fit_.columns = gram.columns;
    damp_ = static_cast<float>(options.damping * gram.mean_diagonal());
  }

  RowsFit run(const double* delta) {
    begin(delta);
    times_gram(fit_.delta, &gram_delta_);
    std::vector<AlphaEquations> normal = normal_equations(fit_.signs);
    take_plain(normal);
    offer(fit_.signs, normal);
    for (int sweep = 0; sweep < options_.sweeps; ++sweep) {
      std::vector<std::vector<float>> signs = fit_.signs;
      if (!this->sweep(&signs)) break;
      normal = normal_equations(signs);
      if (!offer(signs, normal)) break;
    }
    return std::move(fit_);
  }

 private:
  size_t size() const { return static_cast<size_t>(fit_.rows * fit_.columns); }

  // The plain form: signs of what is left, means of its absolute values.
  void begin(const double* delta) {
    fit_.delta.resize(size());
    fit_.signs.assign(levels_, std::vector<float>(size()));
    fit_.alpha.assign(levels_, std::vector<float>(static_cast<size_t>(fit_.rows)));
    std::vector<double> row(static_cast<size_t>(fit_.columns));
    for (int64_t r = 0; r < fit_.rows; ++r) {
      std::copy_n(delta + r * fit_.columns, fit_.columns, row.begin());
      for (int64_t c = 0; c < fit_.columns; ++c)
        fit_.delta[static_cast<size_t>(c * fit_.rows + r)] =
            static_cast<float>(row[static_cast<size_t>(c)]);
      for (size_t l = 0; l < levels_; ++l) {
        const float alpha = options_.start.empty()
                                ? static_cast<float>(row_sums(row.data(), fit_.columns).absolute /
                                                     static_cast<double>(fit_.columns))
                                : options_.start[l];
        fit_.alpha[l][static_cast<size_t>(r)] = alpha;
        for (int64_t c = 0; c < fit_.columns; ++c)
          fit_.signs[l][static_cast<size_t>(c * fit_.rows + r)] =
              row[static_cast<size_t>(c)] >= 0 ? 1.0f : -1.0f;
        subtract_signs(row.data(), fit_.columns, static_cast<double>(alpha));
      }
    }
  }

  // out = C · x, both [columns, rows].
  void times_gram(const std::vector<float>& x, std::vector<float>* out) const {
    out->resize(size());
    fit_kernels().multiply(fit_.columns, fit_.rows, fit_.columns, gram_.values.data(), false,
                           x.data(), false, out->data());
  }

  std::vector<AlphaEquations> normal_equations(const std::vector<std::vector<float>>& signs) {
    std::vector<AlphaEquations> normal(static_cast<size_t>(fit_.rows));
    gram_signs_.resize(levels_);
    for (size_t l = 0; l < levels_; ++l) times_gram(signs[l], &gram_signs_[l]);
    const auto add = [&](const std::vector<float>& x, const std::vector<float>& y, auto place) {
      std::vector<double> sums(static_cast<size_t>(fit_.rows));
      for (int64_t c = 0; c < fit_.columns; ++c) {
        const float *a = x.data() + c * fit_.rows, *b = y.data() + c * fit_.rows;
        for (int64_t r = 0; r < fit_.rows; ++r)
          sums[static_cast<size_t>(r)] += static_cast<double>(a[r]) * static_cast<double>(b[r]);
      }
      for (size_t r = 0; r < normal.size(); ++r) place(&normal[r]) = sums[r];
    };
    add(fit_.delta, gram_delta_, [](AlphaEquations* n) -> double& { return n->energy; });
    for (size_t x = 0; x < levels_; ++x) {
      add(signs[x], gram_delta_, [x](AlphaEquations* n) -> double& { return n->right[x]; });
      for (size_t y = 0; y <= x; ++y) {
        add(signs[x], gram_signs_[y],
            [x, y](AlphaEquations* n) -> double& { return n->gram[x][y]; });
        for (AlphaEquations& n : normal) n.gram[y][x] = n.gram[x][y];
      }
    }
    return normal;
  }

  void take_plain(const std::vector<AlphaEquations>& normal) {
    fit_.equations = normal;
    for (size_t r = 0; r < normal.size(); ++r) {
      AlphaEquations::PerLevel alpha{};
      for (size_t l = 0; l < levels_; ++l) alpha[l] = static_cast<double>(fit_.alpha[l][r]);
      fit_.plain_error.push_back(normal[r].error(options_.levels, alpha));
    }
    fit_.error = fit_.plain_error;
  }

  // Fits α to these signs, and takes the rows that get better by them. False if none does.
  bool offer(const std::vector<std::vector<float>>& signs,
             const std::vector<AlphaEquations>& normal) {
    bool any = false;
    for (size_t r = 0; r < normal.size(); ++r) {
      AlphaEquations::PerLevel alpha = normal[r].solve(options_.levels);
      for (double& a : alpha) a = static_cast<double>(static_cast<float>(a));
      const double error = normal[r].error(options_.levels, alpha);
      if (!(error < fit_.error[r])) continue;
      any = true;
      fit_.error[r] = error;
      fit_.equations[r] = normal[r];
      for (size_t l = 0; l < levels_; ++l) {
        fit_.alpha[l][r] = static_cast<float>(alpha[l]);
        if (signs[l].data() == fit_.signs[l].data()) continue;
        for (size_t i = r; i < size(); i += static_cast<size_t>(fit_.rows))
          fit_.signs[l][i] = signs[l][i];
      }
    }
    return any;
  }

  // The 2^levels values that a row's columns may have: [combination][rows].
  std::vector<std::vector<float>> choices() const {
    std::vector<std::vector<float>> values(size_t{1} << levels_,
                                           std::vector<float>(static_cast<size_t>(fit_.rows)));
    for (size_t i = 0; i < values.size(); ++i)
      for (size_t l = 0; l < levels_; ++l)
        for (size_t r = 0; r < values[i].size(); ++r)
          values[i][r] += (i >> l & 1) != 0 ? fit_.alpha[l][r] : -fit_.alpha[l][r];
    return values;
  }

  // One pass over the columns. False if no sign changed.
  bool sweep(std::vector<std::vector<float>>* signs) {
    const int64_t rows = fit_.rows, columns = fit_.columns;
    const std::vector<std::vector<float>> values = choices();
    // What is left of the row, and its gradient (C + damping)(δ − δ̂).
    std::vector<float> left = fit_.residual(), gradient, moved, update;
    times_gram(left, &gradient);
    for (size_t i = 0; i < size(); ++i) gradient[i] += damp_ * left[i];
    std::vector<float> step(static_cast<size_t>(rows)), slab;
    std::vector<float> choice(static_cast<size_t>(rows)), nearest(static_cast<size_t>(rows));
    bool changed = false;
    for (int64_t first = 0; first < columns; first += kColumnBlock) {
      const int64_t end = std::min(columns, first + kColumnBlock);
      moved.assign(static_cast<size_t>((end - first) * rows), 0.0f);
      for (int64_t c = first; c < end; ++c) {
        const float* row_of_gram = gram_.values.data() + c * columns;
        const float diagonal = row_of_gram[c] + damp_;
        if (!(diagonal > 0)) continue;
        if (!choose(c, diagonal, gradient.data() + c * rows, left.data() + c * rows, values,
                    &choice, &nearest, step.data(), signs))
          continue;
        changed = true;
        std::copy(step.begin(), step.end(), moved.begin() + (c - first) * rows);
        for (int64_t later = c + 1; later < end; ++later) {
          const float weight = row_of_gram[later];
          float* to = gradient.data() + later * rows;
          for (int64_t r = 0; r < rows; ++r) to[r] -= weight * step[static_cast<size_t>(r)];
        }
      }
      if (end == columns) break;
      // gradient[end…] −= C[end…, block] · moved
      const int64_t rest = columns - end;
      slab.resize(static_cast<size_t>((end - first) * rest));
      for (int64_t c = first; c < end; ++c)
        std::copy_n(gram_.values.data() + c * columns + end, rest,
                    slab.data() + (c - first) * rest);
      update.resize(static_cast<size_t>(rest * rows));
      fit_kernels().multiply(rest, rows, end - first, slab.data(), true, moved.data(), false,
                             update.data());
      float* to = gradient.data() + end * rows;
      for (int64_t i = 0; i < rest * rows; ++i) to[i] -= update[static_cast<size_t>(i)];
    }
    return changed;
  }

  // The best value of column c for each row; step: by how much δ̂ grows there. False if none moves.
  bool choose(int64_t c, float diagonal, const float* gradient, const float* left,
              const std::vector<std::vector<float>>& values, std::vector<float>* choice,
              std::vector<float>* nearest, float* step, std::vector<std::vector<float>>* signs) {
    const int64_t rows = fit_.rows;
    const float* delta = fit_.delta.data() + c * rows;
    const float scale = 1 / diagonal;
    float *chosen = choice->data(), *distance = nearest->data();
    for (int64_t r = 0; r < rows; ++r) {
      chosen[r] = 0;
      distance[r] = std::numeric_limits<float>::max();
    }
    for (size_t i = 0; i < values.size(); ++i) {
      const float *value = values[i].data(), number = static_cast<float>(i);
      for (int64_t r = 0; r < rows; ++r) {
        const float best = delta[r] - left[r] + gradient[r] * scale;
        const float far = std::fabs(best - value[r]);
        const bool nearer = far < distance[r];
        chosen[r] = nearer ? number : chosen[r];
        distance[r] = nearer ? far : distance[r];
      }
    }
    bool moves = false;
    for (int64_t r = 0; r < rows; ++r) {
      const auto i = static_cast<size_t>(chosen[r]);
      step[r] = values[i][static_cast<size_t>(r)] - (delta[r] - left[r]);
      bool flips = false;
      for (size_t l = 0; l < levels_; ++l) {
        float& sign = (*signs)[l][static_cast<size_t>(c * rows + r)];
        const float now = (i >> l & 1) != 0 ? 1.0f : -1.0f;
        flips |= now != sign;
        sign = now;
      }
      if (!flips) step[r] = 0;
      moves |= flips;
    }
    return moves;
  }

  const GramMatrix& gram_;
  const SignFitOptions& options_;
  const size_t levels_;
  float damp_;
  RowsFit fit_;
  std::vector<float> gram_delta_;               // C · δ
  std::vector<std::vector<float>> gram_signs_;  // C · s of each level
};

}  // namespace

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

double GramMatrix::mean_diagonal() const {
  double sum = 0;
  for (int64_t c = 0; c < columns; ++c)
    sum += static_cast<double>(values[static_cast<size_t>(c * columns + c)]);
  return columns > 0 ? sum / static_cast<double>(columns) : 0;
}

GramMatrix gram_matrix(const float* x, int64_t rows, int64_t columns, int threads) {
  GramMatrix gram{columns, std::vector<float>(static_cast<size_t>(columns * columns))};
  // Panels of the upper triangle, the rest by symmetry.
  constexpr int64_t kPanel = 128;
  const Status status =
      run_work_list((columns + kPanel - 1) / kPanel, threads, [&](int64_t panel) -> Status {
        const int64_t first = panel * kPanel, count = std::min(kPanel, columns - first);
        const int64_t rest = columns - first;
        std::vector<float> mine(static_cast<size_t>(rows * count)),
            tail(static_cast<size_t>(rows * rest)), product(static_cast<size_t>(count * rest));
        for (int64_t r = 0; r < rows; ++r) {
          std::copy_n(x + r * columns + first, count, mine.data() + r * count);
          std::copy_n(x + r * columns + first, rest, tail.data() + r * rest);
        }
        fit_kernels().multiply(count, rest, rows, mine.data(), true, tail.data(), false,
                               product.data());
        for (int64_t i = 0; i < count; ++i)
          for (int64_t j = i; j < rest; ++j) {
            const float value = product[static_cast<size_t>(i * rest + j)];
            gram.values[static_cast<size_t>((first + i) * columns + first + j)] = value;
            gram.values[static_cast<size_t>((first + j) * columns + first + i)] = value;
          }
        return {};
      });
  if (!status.ok()) throw std::bad_alloc();  // all that can go wrong there
  return gram;
}

std::vector<float> RowsFit::residual() const {
  std::vector<float> left = delta;
  for (size_t l = 0; l < signs.size(); ++l)
    for (int64_t c = 0; c < columns; ++c) {
      float* to = left.data() + c * rows;
      const float *sign = signs[l].data() + c * rows, *scale = alpha[l].data();
      for (int64_t r = 0; r < rows; ++r) to[r] -= scale[r] * sign[r];
    }
  return left;
}

RowsFit fit_rows(const GramMatrix& gram, int64_t rows, const double* delta,
                 const SignFitOptions& options) {
  return Fit(gram, rows, options).run(delta);
}

}  // namespace deltad
