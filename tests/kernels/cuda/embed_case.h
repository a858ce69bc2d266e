// Rows to embed for a base and for variants that replace the table, have low-rank factors for it,
// or both; and their oracle: for the emulator's tests and those of the PTX.
#pragma once

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "kernels/cuda/embed.h"
#include "kernels/cuda/linear_tiles.h"
#include "tensor/float16.h"
#include "tests/kernels/cuda/part_of_groups.h"
#include "tests/support/cuda_on_cpu/global_memory.h"

namespace deltad::cuda {

struct EmbedCase {
  static constexpr int32_t kVocabulary = 37, kOwnVocabulary = 43, kRanks = 16;

  explicit EmbedCase(int32_t columns) : columns(columns) {
    std::mt19937 random(static_cast<unsigned>(columns));
    std::normal_distribution<float> normal;
    const auto fill = [&](std::vector<uint16_t>& to, int64_t n) {
      for (int64_t i = 0; i < n; ++i) to.push_back(f32_to_bf16(normal(random)));
    };
    fill(table, kVocabulary * columns);
    fill(own_table, kOwnVocabulary * columns);
    a_stride = (columns + 31) / 32 * 32;
    fill(a, kRanks * a_stride);
    fill(b, kOwnVocabulary * kRanks);
    for (int32_t k = 0; k < kRanks; ++k) scale.push_back(k < kRanks / 2 ? 0.5f : 2.0f);
    groups.count = 4;
    groups.group[0] = {0, 3, -1};                        // base
    groups.group[1] = {3, 6, 0};                         // its own table
    groups.group[2] = {6, 9, 1};                         // factors
    groups.group[3] = {9, 12, 2};                        // both
    ids = {0, 36, -1, 42, 3, -1, 36, 0, -1, 42, -1, 8};  // −1: another rank's
  }

  int32_t rows() const { return static_cast<int32_t>(ids.size()); }
  int32_t slot_of(int32_t row) const { return row / 3 - 1; }

  static std::vector<uint16_t> tiles(const std::vector<uint16_t>& rows, int32_t count,
                                     int32_t columns) {
    std::vector<uint16_t> out(static_cast<size_t>(base_tiles_size(count, columns)) * 8, 0);
    for (int32_t row = 0; row < count; ++row) {
      for (int32_t column = 0; column < columns; ++column) {
        const int32_t step = column / kStep, in_step = column % kStep;
        const int32_t lane = row % kTileOutputs * 4 + in_step % 8 / 2;
        const int64_t at =
            ((int64_t{row / kTileOutputs} * chunks_of(columns) * kChunkSteps + step) * 32 + lane) *
                8 +
            in_step / 8 * 2 + in_step % 2;
        out[static_cast<size_t>(at)] = rows[static_cast<size_t>(row * columns + column)];
      }
    }
    return out;
  }

  // Rows [first, end) alone; [end − first, columns].
  template <class LaunchKernel>
  std::vector<float> run(int32_t first, int32_t end, LaunchKernel launch) const {
    using emulator::Access;
    using emulator::DeviceBuffer;
    const RowGroups some = part_of_groups(groups, first, end);
    DeviceBuffer<uint16_t> base("table", tiles(table, kVocabulary, columns));
    DeviceBuffer<uint16_t> own("own table", tiles(own_table, kOwnVocabulary, columns));
    DeviceBuffer<const void*> slots("slots",
                                    std::vector<const void*>{own.data(), nullptr, own.data()});
    DeviceBuffer<uint16_t> a_buffer("A", a), b_buffer("B", b);
    DeviceBuffer<float> scales("scale", scale);
    LowRankSlot factors{};
    factors.ranks = kRanks;
    factors.parts = 1;
    factors.part[0] = {0, 1, (kOwnVocabulary + 15) / 16, 0, kRanks, 0};
    factors.scale = scales.data();
    factors.a = a_buffer.data();
    factors.b = b_buffer.data();
    factors.a_stride = a_stride;
    DeviceBuffer<LowRankSlot> low_rank("low rank",
                                       std::vector<LowRankSlot>{LowRankSlot{}, factors, factors});
    DeviceBuffer<RowGroups> group_buffer("groups", std::vector<RowGroups>{some}, Access::kFresh);
    DeviceBuffer<int32_t> id_buffer(
        "ids", std::vector<int32_t>(ids.begin() + first, ids.begin() + end), Access::kFresh);
    DeviceBuffer<float> out("out", static_cast<size_t>((end - first) * columns), Access::kWrite);
    const EmbedParams p = {base.data(),      slots.data(), low_rank.data(), group_buffer.data(),
                           id_buffer.data(), out.data(),   columns,         end - first,
                           columns};
    launch(kEmbedKernel, embed_launch(p), p);
    return out.values();
  }

  // What is wrong with the output of all rows; "" if nothing is.
  std::string wrong(const std::vector<float>& out) const {
    for (int32_t row = 0; row < rows(); ++row) {
      const int32_t slot = slot_of(row), id = ids[static_cast<size_t>(row)];
      const std::vector<uint16_t>& from = slot == 0 || slot == 2 ? own_table : table;
      for (int32_t c = 0; c < columns; ++c) {
        double want = 0, size = 0;
        if (id >= 0) want = bf16_to_f32(from[static_cast<size_t>(id * columns + c)]);
        for (int32_t k = 0; k < (id >= 0 && slot > 0 ? kRanks : 0); ++k) {
          const double part = double{scale[static_cast<size_t>(k)]} *
                              bf16_to_f32(b[static_cast<size_t>(id * kRanks + k)]) *
                              bf16_to_f32(a[static_cast<size_t>(k * a_stride + c)]);
          want += part;
          size += std::abs(part);
        }
        // A product and a chain of sums, then the table's value: exact without factors.
        const double u = std::ldexp(1, -24);
        const double error =
            slot > 0 ? (kRanks + 1) * u / (1 - (kRanks + 1) * u) * size + u * std::abs(want) : 0;
        const double got = out[static_cast<size_t>(row * columns + c)];
        if (!(std::abs(got - want) <= error)) {
          return "row " + std::to_string(row) + " column " + std::to_string(c) + " is " +
                 std::to_string(got) + ", not " + std::to_string(want);
        }
      }
    }
    return "";
  }

  int32_t columns;
  int64_t a_stride;
  std::vector<uint16_t> table, own_table, a, b;
  std::vector<float> scale;
  std::vector<int32_t> ids;
  RowGroups groups{};
};

}  // namespace deltad::cuda
