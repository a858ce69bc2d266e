#include "distill/alpha_descent.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "delta/sign_rows.h"
#include "delta/work_list.h"
#include "merge/svd.h"

namespace deltad {
namespace {

constexpr int64_t kRows = 128;  // that one thread does at a time
constexpr double kMeanDecay = 0.9, kSquareDecay = 0.99, kSmall = 1e-12;

// Σ ±values by the bits of a row.
double signed_sum(const uint8_t* bits, const float* values, int64_t n) {
  double sum = 0;
  for (int64_t first = 0; first < n; first += 8) {
    float part = 0;
    const int64_t count = std::min<int64_t>(8, n - first);
    for (int64_t i = 0; i < count; ++i)
      part += (bits[first / 8] >> i & 1) != 0 ? values[first + i] : -values[first + i];
    sum += static_cast<double>(part);
  }
  return sum;
}

void add_signed(const uint8_t* bits, float by, float* values, int64_t n) {
  for (int64_t i = 0; i < n; ++i) values[i] += (bits[i / 8] >> (i % 8) & 1) != 0 ? by : -by;
}

void for_row_blocks(int64_t rows, int threads, const auto& visit) {
  const Status status = run_work_list((rows + kRows - 1) / kRows, threads, [&](int64_t i) {
    visit(i * kRows, std::min(rows, (i + 1) * kRows));
    return Status();
  });
  CHECK(status.ok(), "arithmetic does not fail");
}

}  // namespace

AlphaDescent::AlphaDescent(std::map<std::string, FittedMatrix>* fitted, PlainWeights* weights,
                           int threads)
    : fitted_(*fitted), weights_(*weights), threads_(threads) {
  for (const auto& [name, matrix] : fitted_)
    for (const FittedLevel& level : matrix.levels) {
      const std::vector<double> zeros(level.alpha.size());
      states_[name].push_back({level.alpha, zeros, zeros, zeros});
    }
}

void AlphaDescent::add_gradient(const std::string& weight, const Matrix& x, const Matrix& grad) {
  const auto found = states_.find(weight);
  if (found == states_.end()) return;
  const int64_t rows = grad.columns, columns = x.columns, row_bytes = (columns + 7) / 8;
  const std::vector<FittedLevel>& levels = fitted_.at(weight).levels;
  std::vector<std::vector<double>> of_row(levels.size(),
                                          std::vector<double>(static_cast<size_t>(rows)));
  for_row_blocks(rows, threads_, [&](int64_t first, int64_t end) {
    Matrix part(grad.rows, end - first);
    for (int64_t t = 0; t < grad.rows; ++t)
      std::copy(grad.row(t) + first, grad.row(t) + end, part.row(t));
    const Matrix by_weight = multiply(part, As::kTransposed, x, As::kIs);
    for (size_t l = 0; l < levels.size(); ++l)
      for (int64_t r = first; r < end; ++r)
        of_row[l][static_cast<size_t>(r)] =
            signed_sum(levels[l].bits.data() + r * row_bytes, by_weight.row(r - first), columns);
  });
  for (size_t l = 0; l < levels.size(); ++l) {
    std::vector<double>& gradient = found->second[l].gradient;
    for (size_t r = 0; r < of_row[l].size(); ++r)
      gradient[gradient.size() == 1 ? 0 : r] += of_row[l][r];
  }
}

void AlphaDescent::step(double rate) {
  ++steps_;
  for (auto& [name, levels] : states_) {
    Matrix& weight = weights_.at(name);
    const int64_t row_bytes = (weight.columns + 7) / 8;
    for (size_t l = 0; l < levels.size(); ++l) {
      Level& state = levels[l];
      FittedLevel& level = fitted_.at(name).levels[l];
      std::vector<float> by(level.alpha.size());
      for (size_t i = 0; i < by.size(); ++i) {
        const auto start = static_cast<double>(state.start[i]);
        const double slope = state.gradient[i] * start;  // by α/start
        state.gradient[i] = 0;
        double &mean = state.mean[i], &square = state.square[i];
        mean = kMeanDecay * mean + (1 - kMeanDecay) * slope;
        square = kSquareDecay * square + (1 - kSquareDecay) * slope * slope;
        const double unbiased = mean / (1 - std::pow(kMeanDecay, steps_));
        const double spread = std::sqrt(square / (1 - std::pow(kSquareDecay, steps_)));
        const float before = level.alpha[i];
        level.alpha[i] -= static_cast<float>(rate * start * unbiased / (spread + kSmall));
        by[i] = level.alpha[i] - before;
      }
      for_row_blocks(weight.rows, threads_, [&](int64_t first, int64_t end) {
        for (int64_t r = first; r < end; ++r)
          add_signed(level.bits.data() + r * row_bytes,
                     by[by.size() == 1 ? 0 : static_cast<size_t>(r)], weight.row(r),
                     weight.columns);
      });
    }
  }
}

}  // namespace deltad
