// Sequences with their keys and values in a paged cache, queries of some of their positions, and
// what the fp64 oracle says of them: for the tests of both attention kernels, on the emulator and
// as PTX. What no sequence has written in the cache is NaN.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "kernels/cuda/attention_decode.h"
#include "kernels/cuda/attention_prefill.h"
#include "kernels/ref/attention.h"
#include "tensor/float16.h"
#include "tests/support/cuda_on_cpu/global_memory.h"

namespace deltad::cuda {

// The last `queries` positions of a sequence of `length` are rows of the batch.
struct TestSequence {
  int32_t length, queries;
};

class AttentionCase {
 public:
  AttentionCase(int32_t heads, int32_t kv_heads, int32_t head_dim,
                const std::vector<TestSequence>& sequences)
      : heads_(heads), kv_heads_(kv_heads), head_dim_(head_dim) {
    std::mt19937 random(static_cast<unsigned>(heads * 1000 + head_dim));
    std::normal_distribution<float> normal;
    int32_t blocks = 0;
    for (const TestSequence& s : sequences) {
      for (int32_t i = 0; i < s.queries; ++i) {
        places_.push_back({s.length - s.queries + i, blocks});
        sequence_of_row_.push_back(static_cast<int32_t>(lengths_.size()));
      }
      lengths_.push_back(s.length);
      first_blocks_.push_back(blocks);
      blocks += (s.length + kKvTokens - 1) / kKvTokens;
    }
    for (int32_t b = 0; b < blocks; ++b) block_table_.push_back(b);
    std::shuffle(block_table_.begin(), block_table_.end(), random);
    const auto block_values = static_cast<size_t>(kv_heads * kv_head_values(padded()));
    cache_.assign(static_cast<size_t>(blocks) * block_values, 0xffff);
    for (size_t s = 0; s < lengths_.size(); ++s) {
      for (int32_t position = 0; position < lengths_[s]; ++position) {
        const int32_t block =
            block_table_[static_cast<size_t>(first_blocks_[s] + position / kKvTokens)];
        for (int32_t head = 0; head < kv_heads; ++head) {
          uint16_t* part = cache_.data() + static_cast<size_t>(block) * block_values +
                           head * kv_head_values(padded());
          for (int32_t d = 0; d < padded(); ++d) {
            const bool there = d < head_dim;
            part[key_index(position % kKvTokens, d)] = there ? f32_to_bf16(normal(random)) : 0;
            part[value_index(position % kKvTokens, d, padded())] =
                there ? f32_to_bf16(normal(random)) : 0;
          }
        }
      }
    }
    // Some rows look hard at few positions, some at all alike.
    for (int32_t row = 0; row < rows(); ++row) {
      const float size = row % 3 == 0 ? 3.0f : row % 3 == 1 ? 1.0f : 0.1f;
      for (int32_t i = 0; i < columns(); ++i) qkv_.push_back(size * normal(random));
    }
  }

  int32_t rows() const { return static_cast<int32_t>(places_.size()); }
  int32_t padded() const { return padded_head_dim(head_dim_); }
  int32_t columns() const { return (heads_ + 2 * kv_heads_) * head_dim_; }
  // Queries are the last in a row: reading beyond them shows.
  int32_t q_offset() const { return 2 * kv_heads_ * head_dim_; }
  int32_t out_columns() const { return heads_ * head_dim_; }

  // Rows [first, end) alone; bf16 [end − first, heads · head_dim]. more_segments: of the grid, than
  // the longest row needs.
  template <class LaunchKernel>
  std::vector<uint16_t> decode(int32_t first, int32_t end, LaunchKernel launch,
                               int32_t more_segments = 0) const {
    using emulator::Access;
    using emulator::DeviceBuffer;
    const Inputs in(*this, first, end);
    DeviceBuffer<RowPlace> places(
        "places", std::vector<RowPlace>(places_.begin() + first, places_.begin() + end),
        Access::kFresh);
    int32_t segments = 1;
    for (const RowPlace& place : places.values()) {
      segments = std::max(segments, place.position / kSegment + 1);
    }
    segments += more_segments;
    const auto count = static_cast<size_t>(end - first);
    DeviceBuffer<uint16_t> out("out", count * static_cast<size_t>(out_columns()), Access::kWrite);
    DeviceBuffer<float> parts(
        "parts", count * static_cast<size_t>(heads_ * segments * attention_part_size(padded())),
        Access::kMessage);
    const size_t arrivals_count =
        count * static_cast<size_t>(kv_heads_ * attention_head_tiles(heads_, kv_heads_));
    DeviceBuffer<int32_t> arrivals("arrivals", std::vector<int32_t>(arrivals_count, 0),
                                   Access::kMessage);
    const AttentionDecodeParams p = {in.qkv.data(),   places.data(), in.block_table.data(),
                                     in.cache.data(), out.data(),    parts.data(),
                                     arrivals.data(), columns(),     out_columns(),
                                     end - first,     heads_,        kv_heads_,
                                     head_dim_,       q_offset(),    segments,
                                     scale()};
    launch(attention_decode_kernel(padded()), attention_decode_launch(p), p);
    std::vector<uint16_t> result = out.values();
    // What is left of the arrivals shows as a wrong output.
    for (const int32_t left : arrivals.values()) {
      if (left != 0) result.clear();
    }
    return result;
  }

  // Rows [first, end) alone, in tiles of at most tile_rows rows; bf16 [end − first, …].
  template <class LaunchKernel>
  std::vector<uint16_t> prefill(int32_t first, int32_t end, LaunchKernel launch,
                                int32_t tile_rows = kPrefillRows) const {
    using emulator::Access;
    using emulator::DeviceBuffer;
    const Inputs in(*this, first, end);
    std::vector<PrefillTile> tiles;
    for (int32_t row = first; row < end; ++row) {
      const auto at = static_cast<size_t>(row);
      const bool goes_on = row > first && sequence_of_row_[at] == sequence_of_row_[at - 1] &&
                           tiles.back().rows < tile_rows;
      if (goes_on) {
        ++tiles.back().rows;
      } else {
        tiles.push_back({row - first, 1, places_[at].position, places_[at].first_block});
      }
    }
    DeviceBuffer<PrefillTile> tile_buffer("tiles", tiles, Access::kFresh);
    DeviceBuffer<uint16_t> out("out", static_cast<size_t>((end - first) * out_columns()),
                               Access::kWrite);
    const AttentionPrefillParams p = {in.qkv.data(),
                                      tile_buffer.data(),
                                      in.block_table.data(),
                                      in.cache.data(),
                                      out.data(),
                                      columns(),
                                      out_columns(),
                                      static_cast<int32_t>(tiles.size()),
                                      heads_,
                                      kv_heads_,
                                      head_dim_,
                                      q_offset(),
                                      scale()};
    launch(attention_prefill_kernel(padded()), attention_prefill_launch(p), p);
    return out.values();
  }

  // What is wrong with the output of all rows; "" if nothing is. `rounding`: how far a query's
  // element and a weight may be from what they are, relatively.
  std::string wrong(const std::vector<uint16_t>& out, double rounding) const {
    if (out.size() != static_cast<size_t>(rows() * out_columns())) return "arrivals are left";
    for (int32_t row = 0; row < rows(); ++row) {
      for (int32_t head = 0; head < heads_; ++head) {
        const Expected want = expected(row, head, rounding);
        for (int32_t d = 0; d < head_dim_; ++d) {
          const auto dim = static_cast<size_t>(d);
          const double got =
              bf16_to_f32(out[static_cast<size_t>(row * out_columns() + head * head_dim_ + d)]);
          const double error =
              want.error[dim] + std::ldexp(1, -8) * (std::abs(want.out[dim]) + want.error[dim]);
          if (!(std::abs(got - want.out[dim]) <= error)) {
            return "row " + std::to_string(row) + " head " + std::to_string(head) + " dimension " +
                   std::to_string(d) + " is " + std::to_string(got) + ", not " +
                   std::to_string(want.out[dim]) + " ± " + std::to_string(error);
          }
        }
      }
    }
    return "";
  }
  static constexpr double kDecodeRounding = 0x1p-16, kPrefillRounding = 0x1p-8;

 private:
  struct Inputs {
    Inputs(const AttentionCase& c, int32_t first, int32_t end)
        : qkv("qkv",
              std::vector<float>(c.qkv_.begin() + first * c.columns(),
                                 c.qkv_.begin() + end * c.columns()),
              emulator::Access::kFresh),
          block_table("block table", c.block_table_, emulator::Access::kFresh),
          cache("cache", c.cache_, emulator::Access::kFresh) {}
    emulator::DeviceBuffer<float> qkv;
    emulator::DeviceBuffer<int32_t> block_table;
    emulator::DeviceBuffer<uint16_t> cache;
  };
  struct Expected {
    std::vector<double> out, error;
  };

  float scale() const {
    return static_cast<float>(std::log2(std::exp(1.0)) / std::sqrt(static_cast<double>(head_dim_)));
  }

  Expected expected(int32_t row, int32_t head, double rounding) const {
    const RowPlace& place = places_[static_cast<size_t>(row)];
    const int32_t kv_head = head / (heads_ / kv_heads_);
    const auto block_values = static_cast<size_t>(kv_heads_ * kv_head_values(padded()));
    std::vector<double> query;
    for (int32_t d = 0; d < head_dim_; ++d) {
      query.push_back(
          qkv_[static_cast<size_t>(row * columns() + q_offset() + head * head_dim_ + d)]);
    }
    const double score_scale = 1 / std::sqrt(static_cast<double>(head_dim_));
    std::vector<std::vector<double>> keys, values;
    double largest = 0;  // Σ |q k| of the position where it is most, scaled
    for (int32_t position = 0; position <= place.position; ++position) {
      const int32_t block =
          block_table_[static_cast<size_t>(place.first_block + position / kKvTokens)];
      const uint16_t* part = cache_.data() + static_cast<size_t>(block) * block_values +
                             kv_head * kv_head_values(padded());
      std::vector<double> key, value;
      double size = 0;
      for (int32_t d = 0; d < head_dim_; ++d) {
        key.push_back(bf16_to_f32(part[key_index(position % kKvTokens, d)]));
        value.push_back(bf16_to_f32(part[value_index(position % kKvTokens, d, padded())]));
        size += std::abs(query[static_cast<size_t>(d)] * key.back()) * score_scale;
      }
      largest = std::max(largest, size);
      keys.push_back(key);
      values.push_back(value);
    }
    Expected want{ref::attend(query, keys, values, score_scale), {}};
    std::vector<std::vector<double>> sizes = values;
    for (auto& value : sizes) {
      for (double& v : value) v = std::abs(v);
    }
    // A score: the query's rounding, its scaling, a dot product in fp32 of two parts, and the
    // exponent's subtraction from a maximum that is no larger. It counts twice, in the weights and
    // in their sum. Then the weight's rounding, exp2f, and a chain of products and sums of weights.
    const double u = std::ldexp(1, -24), steps = 2 * head_dim_ + 8;
    const double score = (rounding + steps * u / (1 - steps * u)) * largest;
    const double chain = (place.position + 1 + 200) * u;
    const double relative = 2 * std::expm1(score) + rounding + 4 * u + 2 * chain;
    for (const double v : ref::attend(query, keys, sizes, score_scale)) {
      want.error.push_back(relative * v);
    }
    return want;
  }

  const int32_t heads_, kv_heads_, head_dim_;
  std::vector<int32_t> lengths_, first_blocks_, sequence_of_row_;
  std::vector<RowPlace> places_;
  std::vector<int32_t> block_table_;
  std::vector<uint16_t> cache_;
  std::vector<float> qkv_;
};

}  // namespace deltad::cuda
