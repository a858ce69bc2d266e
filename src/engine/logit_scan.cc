#include "engine/logit_scan.h"

#include <algorithm>
#include <functional>
#include <limits>

namespace deltad {
namespace {

constexpr int64_t kLanes = 16;  // independent partial results, so that loops need no reordering
constexpr int64_t kPart = 64;   // elements that share one maximum in largest()

constexpr float kLowest = -std::numeric_limits<float>::infinity();

float max_of(const float* x, int64_t n) {
  float lanes[kLanes];
  std::fill(lanes, lanes + kLanes, kLowest);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int64_t j = 0; j < kLanes; ++j) lanes[j] = x[i + j] > lanes[j] ? x[i + j] : lanes[j];
  float best = kLowest;
  for (; i < n; ++i) best = x[i] > best ? x[i] : best;
  for (const float lane : lanes) best = lane > best ? lane : best;
  return best;
}

}  // namespace

LogitMax scan_max(const float* x, int64_t n) {
  float lanes[kLanes], odd[kLanes] = {};
  std::fill(lanes, lanes + kLanes, kLowest);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t j = 0; j < kLanes; ++j) {
      lanes[j] = x[i + j] > lanes[j] ? x[i + j] : lanes[j];
      odd[j] += x[i + j] - x[i + j];  // 0, or NaN for an infinity or a NaN
    }
  }
  float best = kLowest, sum = 0;
  for (; i < n; ++i) {
    best = x[i] > best ? x[i] : best;
    sum += x[i] - x[i];
  }
  for (int64_t j = 0; j < kLanes; ++j) {
    best = lanes[j] > best ? lanes[j] : best;
    sum += odd[j];
  }
  return {best, n > 0 && sum == 0};
}

int32_t index_of(const float* x, int64_t n, float value) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    int32_t hits = 0;
    for (int64_t j = 0; j < kLanes; ++j) hits += x[i + j] == value;
    if (hits > 0) break;
  }
  while (i < n && x[i] != value) ++i;
  return static_cast<int32_t>(i);
}

double sum_exp(const float* x, int64_t n, float max, float scale, std::vector<double>* chunks) {
  if (chunks != nullptr) chunks->clear();
  double total = 0;
  float weights[kExpChunk];
  for (int64_t first = 0; first < n; first += kExpChunk) {
    const int64_t count = std::min(kExpChunk, n - first);
    // Apart from the sum, so that each of the two loops is one that compilers vectorise.
    for (int64_t i = 0; i < count; ++i) weights[i] = exp_negative((x[first + i] - max) * scale);
    for (int64_t i = count; i < kExpChunk; ++i) weights[i] = 0;
    float lanes[kLanes] = {};
    for (int64_t i = 0; i < kExpChunk; i += kLanes)
      for (int64_t j = 0; j < kLanes; ++j) lanes[j] += weights[i + j];
    double sum = 0;
    for (const float lane : lanes) sum += lane;
    total += sum;
    if (chunks != nullptr) chunks->push_back(sum);
  }
  return total;
}

void largest(const float* x, int64_t n, int64_t k, std::vector<Candidate>& out) {
  out.clear();
  k = std::min(k, n);
  if (k <= 0) return;
  const int64_t parts = (n + kPart - 1) / kPart;
  float threshold = kLowest;
  if (k <= parts / 2) {
    // The k-th largest of the parts' maxima: at least k elements reach it.
    std::vector<float> maxima(static_cast<size_t>(parts));
    for (int64_t p = 0; p < parts; ++p)
      maxima[static_cast<size_t>(p)] = max_of(x + p * kPart, std::min(kPart, n - p * kPart));
    std::vector<float> order = maxima;
    std::nth_element(order.begin(), order.begin() + (k - 1), order.end(), std::greater<float>());
    threshold = order[static_cast<size_t>(k - 1)];
    for (int64_t p = 0; p < parts; ++p) {
      if (maxima[static_cast<size_t>(p)] < threshold) continue;
      for (int64_t i = p * kPart; i < std::min((p + 1) * kPart, n); ++i)
        if (x[i] >= threshold) out.push_back({static_cast<int32_t>(i), x[i]});
    }
  } else {
    for (int64_t i = 0; i < n; ++i) out.push_back({static_cast<int32_t>(i), x[i]});
  }
  if (static_cast<int64_t>(out.size()) > k) {
    std::nth_element(out.begin(), out.begin() + (k - 1), out.end(), better);
    out.resize(static_cast<size_t>(k));
  }
  std::sort(out.begin(), out.end(), better);
}

void at_least(const float* x, int64_t n, float threshold, std::vector<Candidate>& out) {
  out.clear();
  for (int64_t first = 0; first < n; first += kPart) {
    const int64_t end = std::min(first + kPart, n);
    if (max_of(x + first, end - first) < threshold) continue;
    for (int64_t i = first; i < end; ++i)
      if (x[i] >= threshold) out.push_back({static_cast<int32_t>(i), x[i]});
  }
}

}  // namespace deltad
