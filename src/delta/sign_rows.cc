#include "delta/sign_rows.h"

#include "tensor/float16.h"

namespace deltad {
namespace {

constexpr int64_t kLanes = 8;

// Σ term(i) for 0 ≤ i < n.
template <typename Term>
double sum_lanes(int64_t n, Term term) {
  double lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int64_t l = 0; l < kLanes; ++l) lanes[l] += term(i + l);
  double total = 0;
  for (int64_t l = 0; l < kLanes; ++l) total += lanes[l];
  for (; i < n; ++i) total += term(i);
  return total;
}

}  // namespace

RowSums row_sums(const double* x, int64_t n) {
  return {sum_lanes(n, [x](int64_t i) { return __builtin_fabs(x[i]); }),
          sum_lanes(n, [x](int64_t i) { return x[i] * x[i]; })};
}

int64_t count_zeros(const double* x, int64_t n) {
  int64_t zeros = 0;
  for (int64_t i = 0; i < n; ++i) zeros += x[i] == 0;
  return zeros;
}

double bf16_squares(const uint16_t* x, int64_t n) {
  return sum_lanes(n, [x](int64_t i) {
    const double value = bf16_to_f32(x[i]);
    return value * value;
  });
}

void pack_signs(const double* x, int64_t n, uint8_t* bits) {
  int64_t j = 0;
  for (; 8 * j + 8 <= n; ++j) {
    const double* at = x + 8 * j;
    unsigned byte = 0;
    for (unsigned i = 0; i < 8; ++i) byte |= static_cast<unsigned>(at[i] >= 0) << i;
    bits[j] = static_cast<uint8_t>(byte);
  }
  if (8 * j < n) {
    unsigned byte = 0;
    for (int64_t i = 8 * j; i < n; ++i) byte |= static_cast<unsigned>(x[i] >= 0) << (i - 8 * j);
    bits[j] = static_cast<uint8_t>(byte);
  }
}

void subtract_signs(double* x, int64_t n, double alpha) {
  for (int64_t i = 0; i < n; ++i) x[i] -= x[i] >= 0 ? alpha : -alpha;
}

void add_signs(const uint8_t* bits, int64_t n, double alpha, double* sum) {
  const double step[2] = {-alpha, alpha};
  for (int64_t i = 0; i < n; ++i) sum[i] += step[(bits[i / 8] >> (i % 8)) & 1];
}

}  // namespace deltad
