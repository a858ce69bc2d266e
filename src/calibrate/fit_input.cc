#include "calibrate/fit_input.h"

#include <algorithm>
#include <utility>

#include "tensor/float16.h"

namespace deltad {
namespace {

constexpr int64_t kTokenUnit = 64;

int64_t padded(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

float wide(float v) { return v; }
float wide(uint16_t v) { return bf16_to_f32(v); }

// XᵀX of a block of columns of x [tokens, width]; x_transposed is the same block.
template <typename T>
void multiply_by_itself(const T* x, int64_t tokens, int64_t width, const StripKernels& kernels,
                        const RowProducts& x_transposed, std::vector<float>* gram) {
  std::vector<float> strip(static_cast<size_t>(tokens * kStripRows));
  TileRoom room;
  uint16_t* tiles = room.of(tokens * kSweepColumns);
  for (int64_t first = 0; first < kSweepColumns; first += kStripRows) {
    for (int64_t t = 0; t < tokens; ++t)
      for (int64_t w = 0; w < kStripRows; ++w)
        strip[static_cast<size_t>(t * kStripRows + w)] = wide(x[t * width + first + w]);
    kernels.pack_tile(tokens, strip.data(), tiles + first * tokens);
  }
  gram->resize(static_cast<size_t>(kSweepColumns * kSweepColumns));
  ProductScratch scratch;
  x_transposed.times(tiles, kSweepColumns, gram->data(), kSweepColumns, &scratch);
}

}  // namespace

Result<FitInput> FitInput::make(Isa isa, const void* x, int64_t tokens, int64_t columns) {
  return RowProducts::type(isa) == DType::kBF16
             ? of(isa, static_cast<const uint16_t*>(x), tokens, columns)
             : of(isa, static_cast<const float*>(x), tokens, columns);
}

template <typename T>
Result<FitInput> FitInput::of(Isa isa, const T* x, int64_t tokens, int64_t columns) {
  FitInput made;
  made.isa_ = isa;
  made.tokens_ = padded(tokens, kTokenUnit);
  made.columns_ = columns;
  const int64_t width = padded(columns, kSweepColumns);
  std::vector<T> rows(static_cast<size_t>(made.tokens_ * width));
  for (int64_t t = 0; t < tokens; ++t)
    std::copy_n(x + t * columns, columns, rows.data() + t * width);
  ASSIGN_OR_RETURN(made.whole_, RowProducts::make(isa, rows.data(), made.tokens_, width, width));
  std::vector<T> turned(static_cast<size_t>(kSweepColumns * made.tokens_));
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
    multiply_by_itself(rows.data() + first, made.tokens_, width, strip_kernels(isa),
                       block.x_transposed, &block.gram);
    for (int64_t c = 0; c < kSweepColumns; ++c)
      made.mean_energy_ +=
          static_cast<double>(block.gram[static_cast<size_t>(c * kSweepColumns + c)]);
    made.blocks_.push_back(std::move(block));
  }
  made.mean_energy_ /= static_cast<double>(std::max<int64_t>(1, columns));
  return made;
}

}  // namespace deltad
