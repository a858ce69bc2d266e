// Passes over one row of logits, written so that the compiler vectorises them: a vocabulary is wide
// and there may be many rows in a step. Pure functions; any thread.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

namespace deltad {

struct LogitMax {
  float value;
  bool finite;  // every logit is finite
};
LogitMax scan_max(const float* x, int64_t n);
// The first index of `value`, which is there.
int32_t index_of(const float* x, int64_t n, float value);

// e^x for x ≤ 0; relative error under 3e-7; 0 from about −87 on. Without comparisons of floats,
// which compilers turn into branches that keep loops from being vectorised.
inline float exp_negative(float x) {
  // 2^n · e^r with n = round(x / ln 2), r = x − n · ln 2 in two parts. Adding 1.5 · 2^23 rounds to
  // an integer and leaves it in the low bits.
  constexpr float kRound = 12582912.0f;
  constexpr float kLowest = 88.0f;
  const int32_t magnitude = std::bit_cast<int32_t>(x) & 0x7fffffff;
  const float clamped = -std::bit_cast<float>(std::min(magnitude, std::bit_cast<int32_t>(kLowest)));
  const float shifted = clamped * 1.44269504088896341f + kRound;
  const float n = shifted - kRound;
  const float r = (clamped - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  const int32_t exponent = std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(kRound);
  const int32_t power = std::bit_cast<int32_t>(p) + (exponent << 23);
  const int32_t keep = -static_cast<int32_t>(exponent > -126);  // below are no normal numbers
  return std::bit_cast<float>(power & keep);
}

// Σ exp((x − max) · scale); the sums of each kExpChunk elements go to chunks, if given.
constexpr int64_t kExpChunk = 256;
double sum_exp(const float* x, int64_t n, float max, float scale, std::vector<double>* chunks);

struct Candidate {
  int32_t id;
  float value;
};
// The k largest, best first; of equal ones the lower id first. Looks closely only at the parts of
// the row that can hold one.
void largest(const float* x, int64_t n, int64_t k, std::vector<Candidate>& out);
// All that are ≥ threshold, by id.
void at_least(const float* x, int64_t n, float threshold, std::vector<Candidate>& out);

inline bool better(const Candidate& a, const Candidate& b) {
  return a.value != b.value ? a.value > b.value : a.id < b.id;
}

}  // namespace deltad
