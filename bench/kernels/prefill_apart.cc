// What a load on a GPU asks of the host about a variant's scales
// (kernels/cuda/linear_prefill_apart): all matrices of a model of 8 billion weights, one level and
// two. Checks that the loss of a tile is that of its outputs one by one before it reports.
#include <benchmark/benchmark.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "kernels/cuda/linear_prefill_apart.h"

namespace {

using namespace deltad::cuda;

struct Matrix {
  int32_t outputs, columns;
};
constexpr Matrix kBlock[] = {{6144, 4096}, {4096, 4096}, {28672, 4096}, {4096, 14336}};
constexpr int kBlocks = 32;

// Of normal weights: the exponents that as many of them have.
ExponentCounts counts_of(int32_t weights) {
  ExponentCounts counts{};
  for (int32_t e = 90; e < 124; ++e) {
    const double low = std::ldexp(1.0, e - 127) / 0.025, high = 2 * low;
    counts[static_cast<size_t>(e)] = static_cast<uint32_t>(
        weights * (std::erf(high / std::sqrt(2.0)) - std::erf(low / std::sqrt(2.0))));
  }
  return counts;
}

void check(const ExponentCounts& counts, const WeightRange& range) {
  const auto digits = prefill_digits(counts, 16, range);
  PrefillTile alpha;
  for (size_t o = 0; o < alpha.size(); ++o) alpha[o] = 1e-5f * static_cast<float>(o * o + 1);
  const auto losses = prefill_losses(digits, 4096, std::span(&alpha, 1));
  for (size_t o = 0; o < alpha.size(); ++o) {
    double lost = 0;
    for (const DigitCount& d : digits) {
      const double rest = alpha[o] - std::nearbyint(alpha[o] / d.digit) * d.digit;
      lost += d.weights * rest * rest;
    }
    if (lost == losses[o].lost) continue;
    std::fprintf(stderr, "prefill_apart: output %zu loses %g, expected %g\n", o, losses[o].lost,
                 lost);
    std::exit(1);
  }
}

void apart_of_8b(benchmark::State& state) {
  std::mt19937 random(1);
  std::lognormal_distribution<float> scale(std::log(3e-4f), 0.3f);
  std::vector<float> alpha(28672);
  for (float& a : alpha) a = scale(random);
  const std::vector<const float*> levels(static_cast<size_t>(state.range(0)), alpha.data());
  for (auto _ : state) {
    for (const Matrix& m : kBlock) {
      const std::vector<ExponentCounts> counts(static_cast<size_t>(m.outputs / 16),
                                               counts_of(16 * m.columns));
      const WeightRange range = weight_range(counts);
      if (state.iterations() == 0) check(counts[0], range);
      const FusedPart whole = {{0, 1}, m.outputs};
      for (int block = 0; block < kBlocks; ++block)
        benchmark::DoNotOptimize(
            prefill_apart(counts, range, m.columns, std::span(&whole, 1), levels));
    }
  }
}
BENCHMARK(apart_of_8b)->Arg(1)->Arg(2)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
