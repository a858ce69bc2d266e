// Rows of several sequences for rotary embedding and the cache's append, and their oracle in fp64:
// for the emulator's tests and those of the PTX.
#pragma once

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "kernels/cuda/rope_append.h"
#include "kernels/ref/rope.h"
#include "tensor/float16.h"
#include "tests/support/cuda_on_cpu/global_memory.h"

namespace deltad::cuda {

struct RopeAppendCase {
  static constexpr double kTheta = 10000;
  static constexpr int32_t kPositions = 80, kSequences = 3, kSequenceBlocks = 5;
  static constexpr uint16_t kUntouched = 0xffff;  // what DeviceBuffer starts with

  RopeAppendCase(int32_t heads, int32_t kv_heads, int32_t head_dim)
      : heads(heads), kv_heads(kv_heads), head_dim(head_dim) {
    std::mt19937 random(static_cast<unsigned>(heads * 100 + head_dim));
    std::normal_distribution<float> normal;
    // Blocks of all sequences in a mixed-up order.
    for (int32_t b = 0; b < kSequences * kSequenceBlocks; ++b) block_table.push_back(b);
    std::shuffle(block_table.begin(), block_table.end(), random);
    // A prompt across the border of two blocks, and generated rows.
    for (int32_t i = 0; i < 5; ++i) places.push_back({13 + i, 0});
    places.push_back({0, kSequenceBlocks});
    places.push_back({kPositions - 1, 2 * kSequenceBlocks});
    for (int32_t i = 0; i < rows() * columns(); ++i) qkv.push_back(normal(random));
    for (int32_t position = 0; position < kPositions; ++position) {
      for (const bool sine : {false, true}) {
        for (int i = 0; i < head_dim / 2; ++i) {
          const double angle = ref::rope_angle(position, i, head_dim, kTheta);
          cos_sin.push_back(static_cast<float>(sine ? std::sin(angle) : std::cos(angle)));
        }
      }
    }
  }

  int32_t rows() const { return static_cast<int32_t>(places.size()); }
  int32_t columns() const { return (heads + 2 * kv_heads) * head_dim; }

  struct Output {
    std::vector<float> qkv;
    std::vector<uint16_t> cache;
    bool operator==(const Output&) const = default;
  };

  // Rows [first, end) alone, as launch(kernel, Launch, parameters) runs them.
  template <class LaunchKernel>
  Output run(int32_t first, int32_t end, LaunchKernel launch) const {
    using emulator::Access;
    using emulator::DeviceBuffer;
    DeviceBuffer<float> values(
        "qkv", std::vector<float>(qkv.begin() + first * columns(), qkv.begin() + end * columns()),
        Access::kWrite);
    DeviceBuffer<float> angles("cos_sin", cos_sin);
    DeviceBuffer<RowPlace> some("places",
                                std::vector<RowPlace>(places.begin() + first, places.begin() + end),
                                Access::kFresh);
    DeviceBuffer<int32_t> table("block table", block_table, Access::kFresh);
    DeviceBuffer<uint16_t> cache("cache", block_table.size() * block_values(), Access::kWrite);
    const RopeAppendParams p = {values.data(),
                                angles.data(),
                                some.data(),
                                table.data(),
                                cache.data(),
                                columns(),
                                end - first,
                                heads,
                                kv_heads,
                                head_dim,
                                0,
                                heads * head_dim,
                                (heads + kv_heads) * head_dim};
    launch(kRopeAppendKernel, rope_append_launch(p), p);
    return {values.values(), cache.values()};
  }

  // Where the row's position of a kv head begins in the cache.
  size_t part_of(int32_t row, int32_t kv_head) const {
    const RowPlace& place = places[static_cast<size_t>(row)];
    const int32_t block =
        block_table[static_cast<size_t>(place.first_block + place.position / kKvTokens)];
    return static_cast<size_t>(block) * block_values() +
           static_cast<size_t>(kv_head * kv_head_values(padded()));
  }
  size_t key_at(int32_t row, int32_t kv_head, int32_t dim) const {
    return part_of(row, kv_head) + static_cast<size_t>(key_index(token(row), dim));
  }
  size_t value_at(int32_t row, int32_t kv_head, int32_t dim) const {
    return part_of(row, kv_head) + static_cast<size_t>(value_index(token(row), dim, padded()));
  }
  int32_t token(int32_t row) const { return places[static_cast<size_t>(row)].position % kKvTokens; }
  int32_t padded() const { return padded_head_dim(head_dim); }
  size_t block_values() const { return static_cast<size_t>(kv_heads * kv_head_values(padded())); }

  // What is wrong with the output of all rows; "" if nothing is.
  std::string wrong(const Output& out) const {
    Output want{qkv, std::vector<uint16_t>(out.cache.size(), kUntouched)};
    const auto at_fault = [](const char* what, int32_t row, int32_t head, int32_t dim) {
      return std::string(what) + " of row " + std::to_string(row) + ", head " +
             std::to_string(head) + ", dimension " + std::to_string(dim);
    };
    for (int32_t row = 0; row < rows(); ++row) {
      for (int32_t head = 0; head < heads + kv_heads; ++head) {
        const auto first = static_cast<size_t>(row * columns() + head * head_dim);
        const std::vector<double> in(qkv.begin() + static_cast<ptrdiff_t>(first),
                                     qkv.begin() + static_cast<ptrdiff_t>(first) + head_dim);
        const std::vector<double> rotated =
            ref::rotate(in, places[static_cast<size_t>(row)].position, kTheta);
        for (int32_t d = 0; d < head_dim; ++d) {
          const auto dim = static_cast<size_t>(d);
          const auto pair = static_cast<size_t>((d + head_dim / 2) % head_dim);
          // The table's rounding, a product and a sum.
          const double error = 3 * std::ldexp(1, -24) * (std::abs(in[dim]) + std::abs(in[pair]));
          const double got = out.qkv[first + dim];
          if (!(std::abs(got - rotated[dim]) <= error)) {
            return at_fault(head < heads ? "query" : "key", row, head, d);
          }
          if (head >= heads) {
            want.cache[key_at(row, head - heads, d)] = f32_to_bf16(static_cast<float>(got));
          }
        }
      }
      for (int32_t head = 0; head < kv_heads; ++head) {
        for (int32_t d = 0; d < head_dim; ++d) {
          const auto column = static_cast<size_t>((heads + kv_heads + head) * head_dim + d);
          const float v = qkv[static_cast<size_t>(row * columns()) + column];
          want.cache[value_at(row, head, d)] = f32_to_bf16(v);
          if (out.qkv[static_cast<size_t>(row * columns()) + column] != v) {
            return at_fault("value in qkv", row, head, d);
          }
        }
        for (int32_t d = head_dim; d < padded(); ++d) {
          want.cache[key_at(row, head, d)] = 0;
          want.cache[value_at(row, head, d)] = 0;
        }
      }
    }
    for (size_t i = 0; i < want.cache.size(); ++i) {
      if (out.cache[i] != want.cache[i]) {
        return "cache at " + std::to_string(i) + " is " + std::to_string(out.cache[i]) + ", not " +
               std::to_string(want.cache[i]);
      }
    }
    return "";
  }

  int32_t heads, kv_heads, head_dim;
  std::vector<float> qkv, cos_sin;
  std::vector<RowPlace> places;
  std::vector<int32_t> block_table;
};

}  // namespace deltad::cuda
