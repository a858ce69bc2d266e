// The prefill kernels on the matrices of an 8B model: for rows × variants the time of each kernel
// that the card could take, not only of the one that is taken (marked), and against cuBLASLt's for
// the base alone. The time of a call includes the packing of its rows. Signs beside W, and with an
// α so small that they are multiplied apart.
#include "kernels/cuda/linear_prefill.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <span>
#include <string_view>

#include "bench/kernels/cuda/bench.h"
#include "bench/kernels/cuda/weight.h"
#include "kernels/cuda/linear_prefill_apart.h"
#include "kernels/cuda/linear_prefill_range.h"
#include "kernels/cuda/linear_prefill_rows.h"

namespace deltad::bench {
namespace {

constexpr int32_t kVariants = 4;
constexpr float kAlpha = 4e-4f, kSmallAlpha = 2e-5f;  // 2 % and 0.1 % of mean |W|

class Prefill {
 public:
  Prefill(Card& card, int32_t outputs, int32_t columns, int32_t most_rows, float alpha);

  void run(int call, const cuda::LinearPrefillKernel& kernel, int32_t rows, int32_t variants);
  void check(const cuda::LinearPrefillKernel& kernel, int32_t rows, int32_t variants);
  double cublas_seconds(int32_t rows) { return weight_.cublas_seconds(rows); }

 private:
  Card& card_;
  Weight weight_;
  const int32_t packed_rows_;
  DeviceMemory packed_, scale_, out_, apart_;
  cuda::WeightRange range_;
};

Prefill::Prefill(Card& card, int32_t outputs, int32_t columns, int32_t most_rows, float alpha)
    : card_(card),
      weight_(card, outputs, columns, kVariants, most_rows, alpha),
      packed_rows_(cuda::prefill_packed_rows(most_rows, kVariants)) {
  packed_ = card.zeros(static_cast<size_t>(cuda::prefill_packed_size(packed_rows_, columns)) * 16);
  scale_ = card.zeros(static_cast<size_t>(most_rows) * 4);
  out_ = card.zeros(static_cast<size_t>(most_rows) * static_cast<size_t>(outputs) * 4);
  const auto tiles = static_cast<size_t>(outputs / 16);
  const DeviceMemory counted = card.zeros(tiles * sizeof(cuda::ExponentCounts));
  const cuda::WeightRangeParams p{weight_.tiles(0), counted.as<uint32_t>(), outputs, columns};
  card.launch(cuda::kWeightRangeKernel, cuda::weight_range_launch(p), p);
  const auto counts = card.download<cuda::ExponentCounts>(counted, tiles);
  range_ = cuda::weight_range(counts);
  const std::vector<float> alphas(static_cast<size_t>(outputs), alpha);
  const float* levels[] = {alphas.data()};
  const cuda::FusedPart whole[] = {{{}, outputs}};
  const auto flags = cuda::prefill_apart(counts, range_, columns, whole, levels);
  if ((flags[0] != 0) != (alpha == kSmallAlpha))
    fail(fmt::format("alpha {}: not multiplied as was expected", alpha));
  std::vector<uint8_t> all;
  for (int32_t v = 0; v < kVariants; ++v) all.insert(all.end(), flags.begin(), flags.end());
  apart_ = card.upload(all);
}

void Prefill::run(int call, const cuda::LinearPrefillKernel& kernel, int32_t rows,
                  int32_t variants) {
  const int32_t columns = weight_.columns();
  const cuda::RowGroups* groups = weight_.groups(rows, variants);
  const cuda::PrefillRowsParams pack{weight_.x(), groups, packed_.data(), scale_.as<float>(),
                                     columns,     rows,   columns,        packed_rows_};
  card_.launch(cuda::kPrefillRowsKernel, cuda::prefill_rows_launch(pack), pack);
  cuda::LinearPrefillParams p{};
  p.x = packed_.data();
  p.x_scale = scale_.as<float>();
  p.w = weight_.tiles(call);
  p.slots = weight_.slots(call);
  p.apart = apart_.as<uint8_t>();
  p.apart_stride = cuda::apart_entries(weight_.outputs());
  p.groups = groups;
  p.out = out_.data();
  p.out_stride = weight_.outputs();
  p.packed_rows = packed_rows_;
  p.outputs = weight_.outputs();
  p.columns = columns;
  p.w_exponent = range_.exponent;
  p.w_factors = cuda::prefill_factors(range_.exponent);
  p.epilogue = cuda::LinearPrefillEpilogue::kStore;
  card_.launch(kernel.name, cuda::linear_prefill_launch(p, kernel, rows, std::max(variants, 1)), p);
}

// The first and last row of each group, at outputs spread over the matrix: the base's within fp32's
// rounding, what a variant adds within the 5 % rule.
void Prefill::check(const cuda::LinearPrefillKernel& kernel, int32_t rows, int32_t variants) {
  run(0, kernel, rows, variants);
  const auto outputs = static_cast<size_t>(weight_.outputs());
  const auto out = card_.download<float>(out_, static_cast<size_t>(rows) * outputs);
  double error = 0, size = 0;
  for (const cuda::RowGroup& group : Weight::row_groups(rows, variants))
    for (const int32_t row : {group.first_row, group.end_row - 1})
      for (size_t output = 0; output < outputs; output += 1 + outputs / 29) {
        const Weight::Expected want =
            weight_.expected(row, static_cast<int32_t>(output), group.slot);
        const double off = out[static_cast<size_t>(row) * outputs + output] - want.y;
        error += off * off;
        size += want.delta * want.delta;
        if (group.slot < 0 && !(std::abs(off) <= want.rounding))
          fail(fmt::format("{}, {} x {}, row {}, output {}: off by {}", kernel.name, outputs,
                           weight_.columns(), row, output, off));
      }
  if (variants > 0 && !(error <= cuda::kPrefillMostLost * cuda::kPrefillMostLost * size))
    fail(fmt::format("{}, {} x {}, {} rows of {} variants: {} of what they add is lost",
                     kernel.name, outputs, weight_.columns(), rows, variants,
                     std::sqrt(error / size)));
}

void print_lines(Card& card, const Named& m, std::span<const cuda::LinearPrefillKernel> kernels,
                 float alpha) {
  const std::vector<int32_t> all_rows =
      card.quick() ? std::vector<int32_t>{24} : std::vector<int32_t>{512, 2048};
  Prefill prefill(card, m.outputs, m.columns, all_rows.back(), alpha);
  for (const int32_t rows : all_rows) {
    const double cublas = prefill.cublas_seconds(rows);
    for (const int32_t variants : {0, 1, 4}) {
      if (variants == 0 && alpha == kSmallAlpha) continue;
      const int32_t levels = variants > 0 ? 1 : 0;
      const std::string_view chosen =
          cuda::linear_prefill_kernel(kernels, Weight::row_groups(rows, variants), m.outputs,
                                      levels, card.multiprocessors())
              .name;
      for (const cuda::LinearPrefillKernel& kernel : kernels) {
        if (kernel.levels != levels) continue;
        card.find(kernel.name, cuda::linear_prefill_shared(kernel));
        prefill.check(kernel, rows, variants);
        const double seconds =
            card.seconds_of([&](int call) { prefill.run(call, kernel, rows, variants); });
        std::printf("| %s %d×%d | %d | %d | %s | %s%s | %.1f | %.0f | %s |\n", m.name, m.outputs,
                    m.columns, rows, variants,
                    variants == 0 ? "" : (alpha == kSmallAlpha ? "apart" : "beside W"), kernel.name,
                    kernel.name == chosen ? " *" : "", 1e6 * seconds,
                    2e-12 * rows * m.outputs * m.columns / seconds,
                    against_cublas(seconds, cublas).c_str());
        std::fflush(stdout);
      }
    }
  }
}

}  // namespace

void bench_linear_prefill(Card& card) {
  const std::span<const cuda::LinearPrefillKernel> kernels =
      card.device().major() == 9
          ? std::span<const cuda::LinearPrefillKernel>(cuda::kLinearPrefillHopperKernels)
          : cuda::kLinearPrefillKernels;
  card.find(cuda::kPrefillRowsKernel, 0);
  card.find(cuda::kWeightRangeKernel, 0);
  std::printf(
      "| matrix | rows | variants | signs | kernel | µs | TFLOP/s | / cuBLASLt's base "
      "|\n|---|---|---|---|---|---|---|---|\n");
  for (const Named& m : matrices(card.quick()))
    for (const float alpha : {kAlpha, kSmallAlpha}) print_lines(card, m, kernels, alpha);
}

}  // namespace deltad::bench
