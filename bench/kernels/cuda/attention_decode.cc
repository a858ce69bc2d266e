// Attention of generated rows, each over a long context of its own, with the heads of an 8B model.
// What it moves is the keys and values.
#include "kernels/cuda/attention_decode.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>

#include "bench/kernels/cuda/bench.h"
#include "kernels/cuda/kv_cache.h"
#include "kernels/ref/attention.h"
#include "tensor/float16.h"

namespace deltad::bench {
namespace {

constexpr int32_t kHeads = 32, kKvHeads = 8, kHeadDim = 128;

// Rows whose contexts have the same length, in blocks of their own in random order.
class Contexts {
 public:
  Contexts(Card& card, int32_t rows, int32_t length) : card_(card), rows_(rows), length_(length) {
    const int32_t blocks = length / cuda::kKvTokens;
    std::vector<cuda::RowPlace> places;
    for (int32_t r = 0; r < rows; ++r) places.push_back({length - 1, r * blocks});
    for (int32_t b = 0; b < rows * blocks; ++b) table_.push_back(b);
    for (size_t i = table_.size() - 1; i > 0; --i)
      std::swap(table_[i], table_[random_bits(4)[0] * 31 % (i + 1)]);
    cache_ = random_bf16(table_.size() * kKvHeads * head_values(), 0.5f);
    qkv_.resize(static_cast<size_t>(rows * kWidth));
    for (float& q : qkv_) q = bf16_to_f32(random_bf16(1, 0.5f)[0]);
    cache_on_card_ = card.upload(cache_);
    qkv_on_card_ = card.upload(qkv_);
    places_ = card.upload(places);
    table_on_card_ = card.upload(table_);
    out_ = card.zeros(static_cast<size_t>(rows * kHeads * kHeadDim) * 2);
    const auto part = static_cast<size_t>(cuda::attention_part_size(kHeadDim));
    parts_ = card.zeros(static_cast<size_t>(rows * kHeads * segments()) * part * 4);
    arrivals_ = card.zeros(static_cast<size_t>(rows * kKvHeads) * 4);
  }

  double bytes() const { return 2.0 * static_cast<double>(cache_.size()); }

  void run() {
    cuda::AttentionDecodeParams p{};
    p.qkv = qkv_on_card_.as<float>();
    p.places = places_.as<cuda::RowPlace>();
    p.block_table = table_on_card_.as<int32_t>();
    p.cache = cache_on_card_.as<uint16_t>();
    p.out = out_.as<uint16_t>();
    p.parts = parts_.as<float>();
    p.arrivals = arrivals_.as<int32_t>();
    p.qkv_stride = kWidth;
    p.out_stride = kHeads * kHeadDim;
    p.rows = rows_;
    p.heads = kHeads;
    p.kv_heads = kKvHeads;
    p.head_dim = kHeadDim;
    p.segments = segments();
    p.scale = static_cast<float>(M_LOG2E / std::sqrt(double{kHeadDim}));
    card_.launch(cuda::attention_decode_kernel(kHeadDim), cuda::attention_decode_launch(p), p);
  }

  // The first and the last row's last head.
  void check() {
    run();
    const auto out = card_.download<uint16_t>(
        out_, static_cast<size_t>(rows_) * static_cast<size_t>(kHeads * kHeadDim));
    for (const int32_t row : {0, rows_ - 1}) {
      const int32_t head = kHeads - 1;
      const float* q = qkv_.data() + row * kWidth + head * kHeadDim;
      const std::vector<double> query(q, q + kHeadDim);
      std::vector<std::vector<double>> keys, values;
      for (int32_t t = 0; t < length_; ++t) {
        const int32_t block = table_[static_cast<size_t>((row * length_ + t) / cuda::kKvTokens)];
        const uint16_t* of_head =
            cache_.data() + static_cast<size_t>(block * kKvHeads + head / 4) * head_values();
        keys.emplace_back();
        values.emplace_back();
        for (int32_t d = 0; d < kHeadDim; ++d) {
          const int32_t in_block = t % cuda::kKvTokens;
          keys.back().push_back(bf16_to_f32(of_head[cuda::key_index(in_block, d)]));
          values.back().push_back(bf16_to_f32(of_head[cuda::value_index(in_block, d, kHeadDim)]));
        }
      }
      const std::vector<double> want =
          ref::attend(query, keys, values, 1 / std::sqrt(double{kHeadDim}));
      for (int32_t d = 0; d < kHeadDim; ++d) {
        const double got =
            bf16_to_f32(out[static_cast<size_t>((row * kHeads + head) * kHeadDim + d)]);
        // The result is rounded to bf16; values are at most 1.
        if (!(std::abs(got - want[static_cast<size_t>(d)]) <=
              std::ldexp(std::abs(want[static_cast<size_t>(d)]), -8) + 1e-3))
          fail(fmt::format("attention, row {}, dimension {}: {} instead of {}", row, d, got,
                           want[static_cast<size_t>(d)]));
      }
    }
  }

 private:
  static constexpr int32_t kWidth = kHeads * kHeadDim;
  static constexpr size_t head_values() {
    return static_cast<size_t>(cuda::kv_head_values(kHeadDim));
  }
  int32_t segments() const {
    return static_cast<int32_t>(
        std::bit_ceil(static_cast<uint32_t>((length_ + cuda::kSegment - 1) / cuda::kSegment)));
  }

  Card& card_;
  const int32_t rows_, length_;
  std::vector<int32_t> table_;
  std::vector<uint16_t> cache_;
  std::vector<float> qkv_;
  DeviceMemory cache_on_card_, qkv_on_card_, places_, table_on_card_, out_, parts_, arrivals_;
};

}  // namespace

void bench_attention_decode(Card& card, double copy_rate) {
  struct Size {
    int32_t rows, length;
  };
  const std::vector<Size> sizes =
      card.quick() ? std::vector<Size>{{2, 288}}
                   : std::vector<Size>{{1, 32768}, {16, 8192}, {64, 2048}, {256, 1024}};
  std::printf(
      "| attention, rows | context | µs | GB/s | of a copy's rate |\n|---|---|---|---|---|\n");
  for (const Size& size : sizes) {
    Contexts contexts(card, size.rows, size.length);
    contexts.check();
    const double seconds = card.seconds_of([&](int) { contexts.run(); });
    const double rate = contexts.bytes() / seconds;
    std::printf("| %d | %d | %.1f | %.0f | %.0f %% |\n", size.rows, size.length, 1e6 * seconds,
                rate / 1e9, 100 * rate / copy_rate);
    std::fflush(stdout);
  }
}

}  // namespace deltad::bench
