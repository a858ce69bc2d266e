// The one implementation of StripKernels: plain loops over the 16 rows of a strip, which compilers
// turn into whatever vectors the file's flags allow. In an anonymous namespace, so that nothing
// compiled for a wide instruction set can stand in for a function of a plain file; for the same
// reason nothing here uses containers of the standard library.
#pragma once

#include <string.h>

#include "calibrate/strip_kernels.h"

namespace deltad {
namespace {

constexpr int64_t kChunk = 64;  // values that are summed in fp32 before they go to fp64

inline uint32_t bits_of(float f) {
  uint32_t u;
  memcpy(&u, &f, sizeof u);
  return u;
}

// Rounds a finite value to bf16.
inline uint32_t narrow(float f) {
  const uint32_t u = bits_of(f);
  return (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
}

// Two columns of a strip as they lie in a tile.
inline void pack_pair(const float* first, const float* second, uint16_t* tile) {
  uint32_t pair[kStripRows];
  for (int64_t w = 0; w < kStripRows; ++w) pair[w] = narrow(first[w]) | narrow(second[w]) << 16;
  memcpy(tile, pair, sizeof pair);
}

StripSums load(const double* delta, int64_t rows, int64_t columns, float* strip) {
  StripSums sums;
  double squares[kStripRows] = {};
  int64_t zeros[kStripRows] = {};
  for (int64_t c = 0; c < columns; ++c) {
    double column[kStripRows] = {};
    for (int64_t r = 0; r < rows; ++r) column[r] = delta[r * columns + c];
    for (int64_t w = 0; w < kStripRows; ++w) {
      squares[w] += column[w] * column[w];
      zeros[w] += column[w] == 0;
      strip[c * kStripRows + w] = static_cast<float>(column[w]);
    }
  }
  for (int64_t r = 0; r < rows; ++r) {
    sums.squares += squares[r];
    sums.zeros += zeros[r];
  }
  sums.finite = sums.squares <= 1e60;  // false for a NaN too
  return sums;
}

void plain_level(int64_t columns, float* left, float* signs, float* alpha, bool given) {
  if (!given) {
    double sums[kStripRows] = {};
    for (int64_t c = 0; c < columns; ++c)
      for (int64_t w = 0; w < kStripRows; ++w)
        sums[w] += static_cast<double>(__builtin_fabsf(left[c * kStripRows + w]));
    for (int64_t w = 0; w < kStripRows; ++w)
      alpha[w] = static_cast<float>(sums[w] / static_cast<double>(columns));
  }
  for (int64_t c = 0; c < columns; ++c)
    for (int64_t w = 0; w < kStripRows; ++w) {
      const float sign = left[c * kStripRows + w] >= 0 ? 1.0f : -1.0f;
      signs[c * kStripRows + w] = sign;
      left[c * kStripRows + w] -= alpha[w] * sign;
    }
}

void pack_tile(int64_t columns, const float* strip, uint16_t* tile) {
  for (int64_t c = 0; c < columns; c += 2)
    pack_pair(strip + c * kStripRows, strip + (c + 1) * kStripRows, tile + c * kStripRows);
}

double residual(int64_t columns, int levels, const float* const* alpha, const float* delta,
                const float* const* signs, float* left) {
  double total = 0;
  for (int64_t first = 0; first < columns; first += kChunk) {
    const int64_t end = first + kChunk < columns ? first + kChunk : columns;
    float sums[kStripRows] = {};
    for (int64_t c = first; c < end; ++c) {
      float value[kStripRows];
      for (int64_t w = 0; w < kStripRows; ++w) value[w] = delta[c * kStripRows + w];
      for (int l = 0; l < levels; ++l)
        for (int64_t w = 0; w < kStripRows; ++w)
          value[w] -= alpha[l][w] * signs[l][c * kStripRows + w];
      for (int64_t w = 0; w < kStripRows; ++w) {
        left[c * kStripRows + w] = value[w];
        sums[w] += value[w] * value[w];
      }
    }
    for (int64_t w = 0; w < kStripRows; ++w) total += static_cast<double>(sums[w]);
  }
  return total;
}

void subtract(int64_t strips, int64_t tokens, const float* scale, const float* y, float* p,
              uint16_t* tiles) {
  const int64_t n = strips * kStripRows;
  for (int64_t t = 0; t < tokens; t += 2)
    for (int64_t s = 0; s < strips; ++s) {
      const int64_t at = t * n + s * kStripRows;
      const float* by = scale + s * kStripRows;
      float first[kStripRows], second[kStripRows];
      for (int64_t w = 0; w < kStripRows; ++w) {
        first[w] = p[at + w] - by[w] * y[at + w];
        second[w] = p[at + n + w] - by[w] * y[at + n + w];
      }
      memcpy(p + at, first, sizeof first);
      memcpy(p + at + n, second, sizeof second);
      pack_pair(first, second, tiles + (s * tokens + t) * kStripRows);
    }
}

void difference(int64_t strips, int64_t tokens, const float* scale, const float* u, const float* p,
                float* z) {
  const int64_t n = strips * kStripRows;
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t r = 0; r < n; ++r) z[t * n + r] = scale[r] * (u[t * n + r] - p[t * n + r]);
}

void dot(int64_t strips, int64_t tokens, const float* x, const float* y, double* sums) {
  const int64_t n = strips * kStripRows;
  for (int64_t s = 0; s < strips; ++s) {
    double total[kStripRows] = {};
    for (int64_t first = 0; first < tokens; first += kChunk) {
      const int64_t end = first + kChunk < tokens ? first + kChunk : tokens;
      float part[kStripRows] = {};
      for (int64_t t = first; t < end; ++t)
        for (int64_t w = 0; w < kStripRows; ++w)
          part[w] += x[t * n + s * kStripRows + w] * y[t * n + s * kStripRows + w];
      for (int64_t w = 0; w < kStripRows; ++w) total[w] += static_cast<double>(part[w]);
    }
    memcpy(sums + s * kStripRows, total, sizeof total);
  }
}

// The value of column c that is best for each row of a strip beside what the others have; grows: by
// how much δ̂ does. One level has but two values, and the nearer one is on the side of `best`.
inline uint32_t choose_one(const float* best, const float* alpha, float* sign, float* grows) {
  uint32_t changed = 0;
  for (int64_t w = 0; w < kStripRows; ++w) {
    const float side = best[w] * alpha[w];
    const float now = side > 0 ? 1.0f : side < 0 ? -1.0f : sign[w];
    grows[w] = alpha[w] * (now - sign[w]);
    changed |= bits_of(now) ^ bits_of(sign[w]);
    sign[w] = now;
  }
  return changed;
}

inline uint32_t choose_many(const SweepStep& step, const float* best, int64_t row, int64_t at,
                            const float* current, float* grows) {
  float nearest[kStripRows], value[kStripRows], chosen[kStripRows];
  for (int64_t w = 0; w < kStripRows; ++w) nearest[w] = 3e38f, chosen[w] = current[w];
  uint32_t code[kStripRows] = {};
  for (uint32_t i = 0; i < 1u << step.levels; ++i) {
    for (int64_t w = 0; w < kStripRows; ++w) value[w] = 0;
    for (int l = 0; l < step.levels; ++l) {
      const float side = (i >> l & 1) != 0 ? 1.0f : -1.0f;
      for (int64_t w = 0; w < kStripRows; ++w) value[w] += side * step.alpha[l][row + w];
    }
    for (int64_t w = 0; w < kStripRows; ++w) {
      const float far = __builtin_fabsf(best[w] - value[w]);
      const bool nearer = far < nearest[w];
      code[w] = nearer ? i : code[w];
      chosen[w] = nearer ? value[w] : chosen[w];
      nearest[w] = nearer ? far : nearest[w];
    }
  }
  uint32_t changed = 0;
  for (int64_t w = 0; w < kStripRows; ++w) grows[w] = chosen[w] - current[w];
  for (int l = 0; l < step.levels; ++l) {
    float* sign = step.signs[l] + at;
    for (int64_t w = 0; w < kStripRows; ++w) {
      const float now = (code[w] >> l & 1) != 0 ? 1.0f : -1.0f;
      changed |= bits_of(now) ^ bits_of(sign[w]);
      sign[w] = now;
    }
  }
  return changed;
}

// Columns between two updates of the gradient of all that come after them.
constexpr int64_t kNear = 8;

// kStrips strips at once: what one of them waits for, the others fill.
template <int64_t kStrips>
uint32_t sweep_strips(const SweepStep& step, int64_t first) {
  constexpr int64_t kRows = kStrips * kStripRows;
  const int64_t n = step.strips * kStripRows, row = first * kStripRows;
  float gradient[kSweepColumns][kRows], moved[kSweepColumns][kRows], grows[kSweepColumns][kRows];
  for (int64_t c = 0; c < kSweepColumns; ++c) {
    memcpy(gradient[c], step.gradient + c * n + row, sizeof gradient[c]);
    for (int64_t w = 0; w < kRows; ++w) moved[c][w] = grows[c][w] = 0;
  }
  float unit[kRows];
  for (int64_t w = 0; w < kRows; ++w)
    unit[w] = step.scale[row + w] > 0 ? 1.0f / step.scale[row + w] : 0.0f;
  uint32_t changed = 0;
  for (int64_t near = 0; near < step.columns; near += kNear) {
    const int64_t end = near + kNear < step.columns ? near + kNear : step.columns;
    for (int64_t c = near; c < end; ++c) {
      const float* gram = step.gram + c * kSweepColumns;
      const float diagonal = gram[c] + step.damping;
      if (!(diagonal > 0)) continue;
      const float inverse = 1.0f / diagonal;
      for (int64_t s = 0; s < kStrips; ++s) {
        const int64_t at = (first + s) * step.strip_values + c * kStripRows, in = s * kStripRows;
        float current[kStripRows] = {}, best[kStripRows];
        for (int l = 0; l < step.levels; ++l)
          for (int64_t w = 0; w < kStripRows; ++w)
            current[w] += step.alpha[l][row + in + w] * step.signs[l][at + w];
        for (int64_t w = 0; w < kStripRows; ++w)
          best[w] =
              current[w] +
              (gradient[c][in + w] + step.damping * (step.delta[at + w] - current[w])) * inverse;
        changed |= step.levels == 1 ? choose_one(best, step.alpha[0] + row + in, step.signs[0] + at,
                                                 grows[c] + in)
                                    : choose_many(step, best, row + in, at, current, grows[c] + in);
      }
      for (int64_t w = 0; w < kRows; ++w) moved[c][w] = grows[c][w] * unit[w];
      for (int64_t later = c + 1; later < end; ++later)
        for (int64_t w = 0; w < kRows; ++w) gradient[later][w] -= gram[later] * grows[c][w];
    }
    for (int64_t later = end; later < step.columns; ++later) {
      float left[kRows];
      memcpy(left, gradient[later], sizeof left);
      for (int64_t c = near; c < end; ++c) {
        const float gram = step.gram[c * kSweepColumns + later];
        for (int64_t w = 0; w < kRows; ++w) left[w] -= gram * grows[c][w];
      }
      memcpy(gradient[later], left, sizeof left);
    }
  }
  for (int64_t s = 0; s < kStrips; ++s) {
    float strip[kSweepColumns][kStripRows];
    for (int64_t c = 0; c < kSweepColumns; ++c)
      memcpy(strip[c], moved[c] + s * kStripRows, sizeof strip[c]);
    pack_tile(kSweepColumns, strip[0], step.moved + (first + s) * kSweepColumns * kStripRows);
  }
  return changed;
}

bool sweep(const SweepStep& step) {
  constexpr int64_t kTogether = 4;
  uint32_t changed = 0;
  int64_t first = 0;
  for (; first + kTogether <= step.strips; first += kTogether)
    changed |= sweep_strips<kTogether>(step, first);
  for (; first < step.strips; ++first) changed |= sweep_strips<1>(step, first);
  return changed != 0;
}

void pack_bits(int64_t columns, const float* signs, int64_t rows, uint8_t* bits) {
  const int64_t row_bytes = (columns + 7) / 8;
  for (int64_t j = 0; j < row_bytes; ++j) {
    uint32_t byte[kStripRows] = {};
    for (int64_t i = 0; i < 8 && 8 * j + i < columns; ++i)
      for (int64_t w = 0; w < kStripRows; ++w)
        byte[w] |= (signs[(8 * j + i) * kStripRows + w] > 0 ? 1u : 0u) << i;
    for (int64_t r = 0; r < rows; ++r) bits[r * row_bytes + j] = static_cast<uint8_t>(byte[r]);
  }
}

constexpr StripKernels kKernels = {load,       plain_level, pack_tile, residual, subtract,
                                   difference, dot,         sweep,     pack_bits};

}  // namespace
}  // namespace deltad
