// The decode kernel on the matrices of an 8B model: for rows × variants its time, the share of the
// copy's rate at which it moves the bytes that it must, and its time against the base's alone and
// cuBLASLt's. The time of a call with variants includes the bit planes of its activations.
#include "kernels/cuda/linear_decode.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdio>

#include "bench/kernels/cuda/bench.h"
#include "bench/kernels/cuda/weight.h"
#include "kernels/cuda/sign_planes.h"

namespace deltad::bench {
namespace {

constexpr int32_t kVariants = 14, kMostRows = 32;
constexpr float kAlpha = 2e-4f;

class Decode {
 public:
  Decode(Card& card, int32_t outputs, int32_t columns);

  void run(int call, int32_t rows, int32_t variants);
  void check();
  // Bytes that a call moves at least.
  double bytes(int32_t rows, int32_t variants) const {
    const double weights = static_cast<double>(weight_.outputs()) * weight_.columns();
    return 2 * weights + variants * weights / 8 + 2.0 * rows * weight_.columns() +
           4.0 * rows * weight_.outputs();
  }
  double cublas_seconds(int32_t rows) { return weight_.cublas_seconds(rows); }

 private:
  Card& card_;
  Weight weight_;
  DeviceMemory out_, planes_, scale_, sum_, base_parts_, sign_parts_, arrivals_;
};

Decode::Decode(Card& card, int32_t outputs, int32_t columns)
    : card_(card), weight_(card, outputs, columns, kVariants, kMostRows, kAlpha) {
  const size_t splits = static_cast<size_t>(cuda::linear_decode_splits(outputs, columns));
  const size_t sums = splits * kMostRows * static_cast<size_t>(outputs) * 4;
  base_parts_ = card.zeros(sums);
  sign_parts_ = card.zeros(sums);
  arrivals_ = card.zeros(static_cast<size_t>(outputs) * 4);
  out_ = card.zeros(static_cast<size_t>(kMostRows * outputs) * 4);
  planes_ = card.zeros(static_cast<size_t>(cuda::planes_size(kMostRows, columns) * 16));
  scale_ = card.zeros(kMostRows * 4);
  sum_ = card.zeros(kMostRows * 4);
  card.wait();
}

void Decode::run(int call, int32_t rows, int32_t variants) {
  const int32_t columns = weight_.columns();
  const cuda::RowGroups* groups = weight_.groups(rows, variants);
  if (variants > 0) {
    const cuda::SignPlanesParams p{
        weight_.x(), planes_.data(), scale_.as<float>(), sum_.as<int32_t>(), columns,
        rows,        columns};
    card_.launch(cuda::kSignPlanesKernel, cuda::sign_planes_launch(p), p);
  }
  cuda::LinearParams p{};
  p.x = weight_.x();
  p.w = weight_.tiles(call);
  p.slots = weight_.slots(call);
  p.planes = planes_.data();
  p.plane_scale = scale_.as<float>();
  p.plane_sum = sum_.as<int32_t>();
  p.groups = groups;
  p.out = out_.data();
  p.base_parts = base_parts_.as<float>();
  p.sign_parts = sign_parts_.as<int32_t>();
  p.arrivals = arrivals_.as<int32_t>();
  p.x_stride = columns;
  p.out_stride = weight_.outputs();
  p.rows = rows;
  p.outputs = weight_.outputs();
  p.columns = columns;
  p.splits = cuda::linear_decode_splits(p.outputs, columns);
  const cuda::LinearKernel kernel = cuda::linear_decode_kernel(rows, variants > 0 ? 1 : 0);
  card_.launch(kernel.name, cuda::linear_decode_launch(p, kernel), p);
}

// Three rows of three variants, and one of the base, at outputs spread over the matrix.
void Decode::check() {
  const int32_t outputs = weight_.outputs(), columns = weight_.columns();
  for (const int32_t variants : {3, 0}) {
    const int32_t rows = 3;
    run(0, rows, variants);
    const auto out = card_.download<float>(out_, static_cast<size_t>(rows * outputs));
    for (int32_t row = 0; row < rows; ++row)
      for (int32_t output = row; output < outputs; output += 1 + outputs / 29) {
        // Activations of the signs in 16 bits.
        const Weight::Expected want = weight_.expected(row, output, variants == 0 ? -1 : row);
        const double bound = want.rounding + (variants == 0 ? 0 : columns * kAlpha * 2.0 / 32767);
        const double got = out[static_cast<size_t>(row * outputs + output)];
        if (!(std::abs(got - want.y) <= bound))
          fail(fmt::format("{} x {}, row {}, output {}: {} instead of {} (± {})", outputs, columns,
                           row, output, got, want.y, bound));
      }
  }
}

}  // namespace

void bench_linear_decode(Card& card, double copy_rate) {
  std::printf(
      "| matrix | rows | variants | µs | GB/s | of a copy's rate | time / base's | / cuBLASLt's "
      "base |\n|---|---|---|---|---|---|---|---|\n");
  for (const Named& m : matrices(card.quick())) {
    Decode matrix(card, m.outputs, m.columns);
    matrix.check();
    for (const int32_t rows :
         card.quick() ? std::vector<int32_t>{1, 3} : std::vector<int32_t>{1, 4, 8, 14, 16, 32}) {
      const double cublas = matrix.cublas_seconds(rows);
      double base = 0;
      for (const int32_t variants : {0, 1, 4, 14}) {
        if (variants > rows) break;
        const double seconds = card.seconds_of([&](int call) { matrix.run(call, rows, variants); });
        if (variants == 0) base = seconds;
        const double rate = matrix.bytes(rows, variants) / seconds;
        std::printf("| %s %d×%d | %d | %d | %.1f | %.0f | %.0f %% | %.2f | %s |\n", m.name,
                    m.outputs, m.columns, rows, variants, 1e6 * seconds, rate / 1e9,
                    100 * rate / copy_rate, seconds / base,
                    against_cublas(seconds, cublas).c_str());
        std::fflush(stdout);
      }
    }
  }
}

}  // namespace deltad::bench
