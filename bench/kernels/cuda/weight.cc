#include "bench/kernels/cuda/weight.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "bench/kernels/cuda/cublas.h"
#include "kernels/cuda/repack.h"
#include "tensor/float16.h"

namespace deltad::bench {

std::vector<Named> matrices(bool quick) {
  if (quick) return {{"tiny", 64, 512}};
  return {{"qkv", 6144, 4096}, {"o", 4096, 4096}, {"gate, up", 28672, 4096}, {"down", 4096, 14336}};
}

Weight::Weight(Card& card, int32_t outputs, int32_t columns, int32_t variants, int32_t most_rows,
               float alpha)
    : card_(card), outputs_(outputs), columns_(columns), alpha_value_(alpha) {
  const size_t values = static_cast<size_t>(outputs) * static_cast<size_t>(columns);
  w_ = random_bf16(values, 0.02f);
  x_ = random_bf16(static_cast<size_t>(most_rows) * static_cast<size_t>(columns), 1);
  x_on_card_ = card.upload(x_);
  alpha_ = card.upload(std::vector<float>(static_cast<size_t>(outputs), alpha));
  const auto copies = static_cast<size_t>(
      std::max<int64_t>(2, card.cold_bytes() / static_cast<int64_t>(2 * values)));
  const DeviceMemory plain = card.upload(w_);
  tiles_.push_back(card.zeros(static_cast<size_t>(cuda::base_tiles_size(outputs, columns) * 16)));
  const cuda::RepackBaseParams base{plain.as<uint16_t>(), tiles_[0].data(), outputs, columns, {}};
  card.launch(cuda::kRepackBaseKernel, cuda::repack_base_launch(base), base);
  signs_.emplace_back();
  for (int32_t v = 0; v < variants; ++v) {
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
  card.wait();
}

std::vector<cuda::RowGroup> Weight::row_groups(int32_t rows, int32_t variants) {
  const int32_t count = std::max(variants, 1);
  std::vector<cuda::RowGroup> groups;
  for (int32_t g = 0; g < count; ++g)
    groups.push_back({rows * g / count, rows * (g + 1) / count, variants == 0 ? -1 : g});
  return groups;
}

const cuda::RowGroups* Weight::groups(int32_t rows, int32_t variants) {
  auto [at, is_new] = groups_.try_emplace({rows, variants});
  if (is_new) {
    cuda::RowGroups table{};
    for (const cuda::RowGroup& group : row_groups(rows, variants))
      table.group[table.count++] = group;
    at->second = card_.upload(std::vector<cuda::RowGroups>{table});
  }
  return at->second.as<cuda::RowGroups>();
}

// Rounding: a sum that is rounded (or cut, as tensor cores do) to fp32 for each 16 columns is off
// by at most 2^-23 of itself each time, and no partial sum is larger than a few times its expected
// size, which is the root of the sum of squares.
Weight::Expected Weight::expected(int32_t row, int32_t output, int32_t variant) const {
  double y = 0, delta = 0, squares = 0;
  for (int32_t i = 0; i < columns_; ++i) {
    const double x = bf16_to_f32(
        x_[static_cast<size_t>(row) * static_cast<size_t>(columns_) + static_cast<size_t>(i)]);
    const size_t at =
        static_cast<size_t>(output) * static_cast<size_t>(columns_) + static_cast<size_t>(i);
    y += bf16_to_f32(w_[at]) * x;
    squares += std::pow(bf16_to_f32(w_[at]) * x, 2);
    if (variant >= 0)
      delta += (bits_[static_cast<size_t>(variant)][at / 8] >> (at % 8) & 1) != 0 ? x : -x;
  }
  delta *= static_cast<double>(alpha_value_);
  return {y + delta, delta, columns_ / 16.0 * 4 * std::sqrt(squares) * 0x1p-23 + 1e-6};
}

std::string against_cublas(double seconds, double cublas_seconds) {
  return cublas_seconds > 0 ? fmt::format("{:.2f}", seconds / cublas_seconds) : "not there";
}

double Weight::cublas_seconds(int32_t rows) {
  if (cublas_lt() == nullptr) return 0;
  std::vector<DeviceMemory> plain;
  plain.push_back(card_.upload(w_));
  for (int c = 1; c < copies(); ++c) plain.push_back(card_.copy_of(plain[0]));
  const DeviceMemory out =
      card_.zeros(static_cast<size_t>(rows) * static_cast<size_t>(outputs_) * 4);
  CublasLinear product(card_, outputs_, columns_, rows);
  const double seconds = card_.seconds_of(
      [&](int call) { product.run(out.as<float>(), plain[copy(call)].as<uint16_t>(), x()); });
  const auto got = card_.download<float>(out, 1);
  const Expected want = expected(0, 0, -1);
  if (!(std::abs(got[0] - want.y) <= want.rounding))
    fail(fmt::format("cuBLASLt gives {} instead of {} (± {})", got[0], want.y, want.rounding));
  return seconds;
}

}  // namespace deltad::bench
