// The arithmetic of sign compression, one row at a time, in fp64. Sums are taken in a fixed order
// (eight lanes, then the lanes), so a file's bytes depend on nothing but its input.
#pragma once

#include <cstdint>

namespace deltad {

struct RowSums {
  double absolute = 0;  // Σ|x|
  double squares = 0;   // Σx²
};

// x [n]
RowSums row_sums(const double* x, int64_t n);
int64_t count_zeros(const double* x, int64_t n);
// Σx² of bf16 values
double bf16_squares(const uint16_t* x, int64_t n);

// bit i (LSB first) of byte j of bits [⌈n/8⌉] is x[8j+i] ≥ 0 (zero counts as plus); padding bits 0.
void pack_signs(const double* x, int64_t n, uint8_t* bits);
// x[i] −= α where x[i] ≥ 0, += α elsewhere: what is left after one more level.
void subtract_signs(double* x, int64_t n, double alpha);
// sum[i] += α where the bit is set, −= α elsewhere.
void add_signs(const uint8_t* bits, int64_t n, double alpha, double* sum);

}  // namespace deltad
