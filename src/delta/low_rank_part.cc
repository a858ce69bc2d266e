#include "delta/low_rank_part.h"

#include <fmt/core.h>

#include <cmath>

#include "delta/packed_adapter.h"
#include "tensor/float16.h"

namespace deltad {
namespace {

constexpr int kBits = 8;

// False if a value is none that bf16 has.
bool round(std::vector<float>* values) {
  bool finite = true;
  for (float& value : *values) {
    value = bf16_to_f32(f32_to_bf16(value));
    finite &= std::isfinite(value);
  }
  return finite;
}

}  // namespace

int64_t low_rank_row_bytes(int64_t inputs, int64_t outputs) {
  return packed_row_bytes(kBits, inputs, outputs);
}

std::vector<uint8_t> pack_low_rank(const AdapterFactors& factors) {
  return pack_factors(kBits, factors);
}

Status check_low_rank_scales(const uint8_t* rows, int64_t rank, int64_t row_bytes) {
  return check_packed_scales(rows, rank, row_bytes);
}

Result<AdapterFactors> unpack_low_rank(const uint8_t* rows, int64_t rank, int64_t inputs,
                                       int64_t outputs) {
  AdapterFactors factors{rank, inputs, outputs, 1, {}, {}};
  RETURN_IF_ERROR(unpack_factors(kBits, rows, &factors));
  if (!round(&factors.a) || !round(&factors.b))
    return invalid_argument("a factor is larger than bf16 holds, expected finite numbers");
  return factors;
}

void add_low_rank(const AdapterFactors& factors, int64_t first, int64_t count, double factor,
                  double* delta) {
  const int64_t columns = factors.inputs;
  for (int64_t r = 0; r < count; ++r)
    for (int64_t k = 0; k < factors.rank; ++k) {
      const float* a = factors.a.data() + k * columns;
      const double b = factor * static_cast<double>(
                                    factors.b[static_cast<size_t>((first + r) * factors.rank + k)]);
      double* out = delta + r * columns;
      for (int64_t c = 0; c < columns; ++c) out[c] += b * static_cast<double>(a[c]);
    }
}

}  // namespace deltad
