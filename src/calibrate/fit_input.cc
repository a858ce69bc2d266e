#include "calibrate/fit_input.h"

#include <algorithm>
#include <utility>

#include "calibrate/fit_kernels.h"

namespace deltad {
namespace {

constexpr int64_t kTokenUnit = 64;

int64_t padded(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

}  // namespace

Result<FitInput> FitInput::make(Isa isa, const float* x, int64_t tokens, int64_t columns) {
  FitInput made;
  made.isa_ = isa;
  made.tokens_ = padded(tokens, kTokenUnit);
  made.columns_ = columns;
  const int64_t width = padded(columns, kSweepColumns);
  std::vector<float> rows(static_cast<size_t>(made.tokens_ * width));
  for (int64_t t = 0; t < tokens; ++t)
    std::copy_n(x + t * columns, columns, rows.data() + t * width);
  ASSIGN_OR_RETURN(made.whole_, RowProducts::make(isa, rows.data(), made.tokens_, width, width));
  std::vector<float> turned(static_cast<size_t>(kSweepColumns * made.tokens_));
  for (int64_t first = 0; first < columns; first += kSweepColumns) {
    Block block;
    ASSIGN_OR_RETURN(
        block.x, RowProducts::make(isa, rows.data() + first, made.tokens_, kSweepColumns, width));
    for (int64_t c = 0; c < kSweepColumns; ++c)
      for (int64_t t = 0; t < made.tokens_; ++t)
        turned[static_cast<size_t>(c * made.tokens_ + t)] =
            rows[static_cast<size_t>(t * width + first + c)];
    ASSIGN_OR_RETURN(block.x_transposed, RowProducts::make(isa, turned.data(), kSweepColumns,
                                                           made.tokens_, made.tokens_));
    block.gram.resize(static_cast<size_t>(kSweepColumns * kSweepColumns));
    fit_kernels().multiply(kSweepColumns, kSweepColumns, made.tokens_, turned.data(), false,
                           turned.data(), true, block.gram.data());
    for (int64_t c = 0; c < kSweepColumns; ++c)
      made.mean_energy_ +=
          static_cast<double>(block.gram[static_cast<size_t>(c * kSweepColumns + c)]);
    made.blocks_.push_back(std::move(block));
  }
  made.mean_energy_ /= static_cast<double>(std::max<int64_t>(1, columns));
  return made;
}

}  // namespace deltad
