// The decode kernel on the matrices of an 8B model: for rows × variants its time, the share of the
// copy's rate at which it moves the bytes that it must, and its time against the base's alone and
// cuBLASLt's. The time of a call with variants includes the bit planes of its activations.
#include "kernels/cuda/linear_decode.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "bench/kernels/cuda/bench.h"
#include "bench/kernels/cuda/cublas.h"
#include "kernels/cuda/repack.h"
#include "kernels/cuda/sign_planes.h"
#include "tensor/float16.h"

namespace deltad::bench {
namespace {

constexpr int32_t kVariants = 14, kMostRows = 32;
constexpr float kAlpha = 2e-4f;

class Matrix {
 public:
  Matrix(Card& card, int32_t outputs, int32_t columns);

  void run(int copy, int32_t rows, int32_t variants);
  void check();
  // Bytes that a call moves at least.
  double bytes(int32_t rows, int32_t variants) const {
    const double weights = static_cast<double>(outputs_) * columns_;
    return 2 * weights + variants * weights / 8 + 2.0 * rows * columns_ + 4.0 * rows * outputs_;
  }
  int copies() const { return static_cast<int>(tiles_.size()); }
  double cublas_seconds(int32_t rows);  // 0: there is no cuBLASLt

 private:
  struct Expected {
    double value, bound;
  };
  Expected expected(int32_t row, int32_t output, int32_t variant) const;

  Card& card_;
  const int32_t outputs_, columns_;
  std::vector<uint16_t> w_;                                     // [outputs, columns]
  std::vector<uint16_t> x_;                                     // [kMostRows, columns]
  std::vector<std::vector<uint8_t>> bits_;                      // [variants][outputs, columns / 8]
  std::vector<DeviceMemory> tiles_;                             // [copies]
  std::vector<std::vector<DeviceMemory>> signs_;                // [copies][variants]
  std::vector<DeviceMemory> slots_;                             // [copies]
  std::map<std::pair<int32_t, int32_t>, DeviceMemory> groups_;  // by rows and variants
  DeviceMemory x_on_card_, alpha_, out_, planes_, scale_, sum_, base_parts_, sign_parts_, arrivals_;
};

Matrix::Matrix(Card& card, int32_t outputs, int32_t columns)
    : card_(card), outputs_(outputs), columns_(columns) {
  const size_t values = static_cast<size_t>(outputs) * static_cast<size_t>(columns);
  w_ = random_bf16(values, 0.02f);
  x_ = random_bf16(static_cast<size_t>(kMostRows * columns), 1);
  x_on_card_ = card.upload(x_);
  alpha_ = card.upload(std::vector<float>(static_cast<size_t>(outputs), kAlpha));
  const auto copies = static_cast<size_t>(
      std::max<int64_t>(2, card.cold_bytes() / static_cast<int64_t>(2 * values)));
  const DeviceMemory plain = card.upload(w_);
  tiles_.push_back(card.zeros(static_cast<size_t>(cuda::base_tiles_size(outputs, columns) * 16)));
  const cuda::RepackBaseParams base{plain.as<uint16_t>(), tiles_[0].data(), outputs, columns, {}};
  card.launch(cuda::kRepackBaseKernel, cuda::repack_base_launch(base), base);
  signs_.emplace_back();
  for (int32_t v = 0; v < kVariants; ++v) {
    bits_.push_back(random_bits(values / 8));
    const DeviceMemory raw = card.upload(bits_.back());
    signs_[0].push_back(
        card.zeros(static_cast<size_t>(cuda::sign_tiles_size(outputs, columns) * 8)));
    const cuda::RepackSignsParams p{
        raw.as<uint8_t>(), signs_[0].back().data(), outputs, columns, {}};
    card.launch(cuda::kRepackSignsKernel, cuda::repack_signs_launch(p), p);
    card.wait();
  }
  for (size_t c = 0; c < copies; ++c) {
    if (c > 0) {
      tiles_.push_back(card.copy_of(tiles_[0]));
      signs_.emplace_back();
      for (const DeviceMemory& signs : signs_[0]) signs_[c].push_back(card.copy_of(signs));
    }
    std::vector<cuda::SignSlot> slots;
    for (const DeviceMemory& signs : signs_[c])
      slots.push_back({{signs.data()}, {alpha_.as<float>()}});
    slots_.push_back(card.upload(slots));
  }
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

// Rows in turn of `variants` groups of about the same size, or of the base.
void Matrix::run(int copy, int32_t rows, int32_t variants) {
  auto [at, is_new] = groups_.try_emplace({rows, variants});
  if (is_new) {
    cuda::RowGroups groups{};
    for (int32_t g = 0; g < std::max(variants, 1); ++g)
      groups.group[groups.count++] = {rows * g / std::max(variants, 1),
                                      rows * (g + 1) / std::max(variants, 1),
                                      variants == 0 ? -1 : g};
    at->second = card_.upload(std::vector<cuda::RowGroups>{groups});
  }
  const auto c = static_cast<size_t>(copy % copies());
  if (variants > 0) {
    const cuda::SignPlanesParams p{x_on_card_.as<uint16_t>(),
                                   planes_.data(),
                                   scale_.as<float>(),
                                   sum_.as<int32_t>(),
                                   columns_,
                                   rows,
                                   columns_};
    card_.launch(cuda::kSignPlanesKernel, cuda::sign_planes_launch(p), p);
  }
  cuda::LinearParams p{};
  p.x = x_on_card_.as<uint16_t>();
  p.w = tiles_[c].data();
  p.slots = slots_[c].as<cuda::SignSlot>();
  p.planes = planes_.data();
  p.plane_scale = scale_.as<float>();
  p.plane_sum = sum_.as<int32_t>();
  p.groups = at->second.as<cuda::RowGroups>();
  p.out = out_.data();
  p.base_parts = base_parts_.as<float>();
  p.sign_parts = sign_parts_.as<int32_t>();
  p.arrivals = arrivals_.as<int32_t>();
  p.x_stride = columns_;
  p.out_stride = outputs_;
  p.rows = rows;
  p.outputs = outputs_;
  p.columns = columns_;
  p.splits = cuda::linear_decode_splits(outputs_, columns_);
  const cuda::LinearKernel kernel = cuda::linear_decode_kernel(rows, variants > 0 ? 1 : 0);
  card_.launch(kernel.name, cuda::linear_decode_launch(p, kernel), p);
}

// The bound: a sum that is rounded (or cut, as tensor cores do) to fp32 for each 16 columns is off
// by at most 2^-23 of itself each time, and no partial sum is larger than a few times its expected
// size, which is the root of the sum of squares; activations of the signs have 16 bits.
Matrix::Expected Matrix::expected(int32_t row, int32_t output, int32_t variant) const {
  double y = 0, delta = 0, squares = 0;
  for (int32_t i = 0; i < columns_; ++i) {
    const double x = bf16_to_f32(x_[static_cast<size_t>(row * columns_ + i)]);
    const size_t at =
        static_cast<size_t>(output) * static_cast<size_t>(columns_) + static_cast<size_t>(i);
    y += bf16_to_f32(w_[at]) * x;
    squares += std::pow(bf16_to_f32(w_[at]) * x, 2);
    if (variant >= 0)
      delta += (bits_[static_cast<size_t>(variant)][at / 8] >> (at % 8) & 1) != 0 ? x : -x;
  }
  const double sums = columns_ / 16.0 * 4 * std::sqrt(squares) * 0x1p-23;
  const double signs = variant < 0 ? 0 : static_cast<double>(kAlpha) * columns_ * 2 / 32767;
  return {y + static_cast<double>(kAlpha) * delta, sums + signs + 1e-6};
}

// Three rows of three variants, and one of the base, at outputs spread over the matrix.
void Matrix::check() {
  for (const int32_t variants : {3, 0}) {
    const int32_t rows = 3;
    run(0, rows, variants);
    const auto out = card_.download<float>(out_, static_cast<size_t>(rows * outputs_));
    for (int32_t row = 0; row < rows; ++row)
      for (int32_t output = row; output < outputs_; output += 1 + outputs_ / 29) {
        const Expected want = expected(row, output, variants == 0 ? -1 : row);
        const double got = out[static_cast<size_t>(row * outputs_ + output)];
        if (!(std::abs(got - want.value) <= want.bound))
          fail(fmt::format("{} x {}, row {}, output {}: {} instead of {} (± {})", outputs_,
                           columns_, row, output, got, want.value, want.bound));
      }
  }
}

double Matrix::cublas_seconds(int32_t rows) {
  if (cublas_lt() == nullptr) return 0;
  std::vector<DeviceMemory> plain;
  plain.push_back(card_.upload(w_));
  for (int c = 1; c < copies(); ++c) plain.push_back(card_.copy_of(plain[0]));
  CublasLinear product(card_, outputs_, columns_, rows);
  const double seconds = card_.seconds_of([&](int call) {
    product.run(out_.as<float>(), plain[static_cast<size_t>(call % copies())].as<uint16_t>(),
                x_on_card_.as<uint16_t>());
  });
  const auto out = card_.download<float>(out_, static_cast<size_t>(outputs_));
  const Expected want = expected(0, 0, -1);
  if (!(std::abs(out[0] - want.value) <= want.bound))
    fail(fmt::format("cuBLASLt gives {} instead of {} (± {})", out[0], want.value, want.bound));
  return seconds;
}

struct Named {
  const char* name;
  int32_t outputs, columns;
};

}  // namespace

void bench_linear_decode(Card& card, double copy_rate) {
  const std::vector<Named> matrices = card.quick() ? std::vector<Named>{{"tiny", 64, 512}}
                                                   : std::vector<Named>{{"qkv", 6144, 4096},
                                                                        {"o", 4096, 4096},
                                                                        {"gate, up", 28672, 4096},
                                                                        {"down", 4096, 14336}};
  std::printf(
      "| matrix | rows | variants | µs | GB/s | of a copy's rate | time / base's | / cuBLASLt's "
      "base |\n|---|---|---|---|---|---|---|---|\n");
  for (const Named& m : matrices) {
    Matrix matrix(card, m.outputs, m.columns);
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
                    cublas > 0 ? fmt::format("{:.2f}", seconds / cublas).c_str() : "not there");
        std::fflush(stdout);
      }
    }
  }
}

}  // namespace deltad::bench
