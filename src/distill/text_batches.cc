#include "distill/text_batches.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace deltad {
namespace {

constexpr int64_t kBatchTokens = 256;
// The fractions of its multiples are spread evenly, however many there are.
constexpr double kGoldenRatio = 0.6180339887498949;

}  // namespace

std::vector<TextBatch> batches_of(const std::vector<TokenSequence>& text) {
  std::vector<TextBatch> batches;
  int64_t row = 0;
  for (size_t s = 0; s < text.size(); ++s) {
    const auto n = static_cast<int64_t>(text[s].size());
    if (batches.empty() || batches.back().rows + n > kBatchTokens)
      batches.push_back({s, s, row, 0});
    batches.back().end = s + 1;
    batches.back().rows += n;
    row += n;
  }
  return batches;
}

std::vector<size_t> spread_order(size_t batches) {
  std::vector<size_t> by_place(batches), order(batches);
  std::iota(by_place.begin(), by_place.end(), size_t{0});
  const auto place = [](size_t step) {
    const double multiple = static_cast<double>(step) * kGoldenRatio;
    return multiple - std::floor(multiple);
  };
  std::sort(by_place.begin(), by_place.end(),
            [&](size_t a, size_t b) { return place(a) < place(b); });
  for (size_t i = 0; i < batches; ++i) order[by_place[i]] = i;
  return order;
}

}  // namespace deltad
