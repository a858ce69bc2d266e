// A weight of several parts, variants with low-rank factors for some of them, and what the fp64
// oracle says of shrink and expand together: for the emulator's tests and those of the PTX.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/cuda/low_rank_expand.h"
#include "kernels/cuda/low_rank_shrink.h"
#include "kernels/ref/linear.h"
#include "tensor/float16.h"
#include "tests/kernels/cuda/part_of_groups.h"
#include "tests/support/cuda_on_cpu/global_memory.h"

namespace deltad::cuda {

class LowRankCase {
 public:
  // Parts of so many rows, padded to tiles of 16, one after the other or taking turns by tiles.
  LowRankCase(std::vector<int32_t> part_rows, bool interleaved, int32_t columns)
      : part_rows_(std::move(part_rows)),
        interleaved_(interleaved),
        columns_(columns),
        random_(static_cast<unsigned>(columns)) {
    for (const int32_t rows : part_rows_) outputs_ += tiles_of(rows) * 16;
  }

  // A variant with factors of these ranks, 0 for a part without. Returns its slot.
  int32_t add_variant(const std::vector<int32_t>& ranks) {
    using emulator::DeviceBuffer;
    Variant v;
    std::vector<uint16_t> a, b;
    std::vector<float> scale;
    std::normal_distribution<float> normal;
    for (size_t i = 0; i < ranks.size(); ++i) {
      const int32_t rank = ranks[i], padded = (rank + kRankStep - 1) / kRankStep * kRankStep;
      Part part{rank, 0.5f + static_cast<float>(i), {}, {}};
      for (int32_t k = 0; k < padded; ++k) {
        for (int32_t c = 0; c < a_stride(); ++c) {
          const float value =
              k < rank && c < columns_ ? bf16_to_f32(f32_to_bf16(normal(random_))) : 0;
          a.push_back(f32_to_bf16(value));
          if (k < rank && c < columns_) part.a.push_back(value);
        }
        scale.push_back(part.scale);
      }
      if (rank > 0) {
        v.slot.part[v.slot.parts++] = {first_tile(i),
                                       interleaved_ ? static_cast<int32_t>(ranks.size()) : 1,
                                       tiles_of(part_rows_[i]),
                                       v.slot.ranks,
                                       padded,
                                       static_cast<int64_t>(b.size())};
      }
      v.slot.ranks += padded;
      for (int32_t o = 0; o < (rank > 0 ? tiles_of(part_rows_[i]) * 16 : 0); ++o) {
        for (int32_t k = 0; k < padded; ++k) {
          const float value =
              k < rank && o < part_rows_[i] ? bf16_to_f32(f32_to_bf16(normal(random_))) : 0;
          b.push_back(f32_to_bf16(value));
          if (k < rank && o < part_rows_[i]) part.b.push_back(value);
        }
      }
      v.parts.push_back(std::move(part));
    }
    v.a = std::make_unique<DeviceBuffer<uint16_t>>("A", a);
    v.b = std::make_unique<DeviceBuffer<uint16_t>>("B", b);
    v.scale = std::make_unique<DeviceBuffer<float>>("scale", scale);
    v.slot.a = v.a->data();
    v.slot.b = v.b->data();
    v.slot.scale = v.scale->data();
    v.slot.a_stride = a_stride();
    variants_.push_back(std::move(v));
    return static_cast<int32_t>(variants_.size()) - 1;
  }

  // Makes rows of activations, and of outputs before the expand.
  void set_groups(const std::vector<RowGroup>& groups) {
    groups_ = groups;
    std::normal_distribution<float> normal;
    for (int32_t row = 0; row < rows(); ++row) {
      for (int32_t c = 0; c < x_stride(); ++c) {
        x_.push_back(c < columns_ ? f32_to_bf16(normal(random_)) : 0);
      }
      for (int32_t o = 0; o < outputs_; ++o) initial_.push_back(normal(random_));
    }
  }

  int32_t rows() const { return groups_.back().end_row; }
  int32_t outputs() const { return outputs_; }

  // Rows [first, end) alone, fp32 [end − first, outputs]. launch(kernel, Launch, parameters) runs
  // both kernels.
  template <class LaunchKernel>
  std::vector<float> run(int32_t first, int32_t end, LaunchKernel launch) const {
    using emulator::Access;
    using emulator::DeviceBuffer;
    RowGroups some = part_of_groups(groups_, first, end);
    int32_t max_ranks = kRankStep;
    some.group[some.count] = {0, end - first, 0};  // left from a batch before
    std::vector<LowRankSlot> slots;
    for (const Variant& v : variants_) {
      slots.push_back(v.slot);
      max_ranks = std::max(max_ranks, v.slot.ranks);
    }
    DeviceBuffer<uint16_t> x("x",
                             std::vector<uint16_t>(x_.begin() + int64_t{first} * x_stride(),
                                                   x_.begin() + int64_t{end} * x_stride()),
                             Access::kFresh);
    DeviceBuffer<LowRankSlot> slot_buffer("slots", slots);
    DeviceBuffer<RowGroups> groups("groups", std::vector<RowGroups>{some}, Access::kFresh);
    const int32_t splits = low_rank_splits(columns_);
    DeviceBuffer<float> t("t", static_cast<size_t>(splits * (end - first) * max_ranks),
                          Access::kWrite);
    DeviceBuffer<float> out("out",
                            std::vector<float>(initial_.begin() + int64_t{first} * outputs_,
                                               initial_.begin() + int64_t{end} * outputs_),
                            Access::kWrite);
    // One group more than there are.
    const LowRankShrinkParams shrink = {x.data(), slot_buffer.data(), groups.data(),
                                        t.data(), x_stride(),         end - first,
                                        columns_, max_ranks,          some.count + 1};
    launch(kLowRankShrinkKernel, low_rank_shrink_launch(shrink), shrink);
    const LowRankExpandParams expand = {t.data(),  slot_buffer.data(), groups.data(), out.data(),
                                        outputs_,  end - first,        outputs_,      splits,
                                        max_ranks, some.count + 1};
    launch(kLowRankExpandKernel, low_rank_expand_launch(expand), expand);
    return out.values();
  }

  // What is wrong with the output of all rows; "" if nothing is.
  std::string wrong(const std::vector<float>& out) const {
    for (const RowGroup& group : groups_) {
      for (int32_t row = group.first_row; row < group.end_row; ++row) {
        std::vector<double> y(static_cast<size_t>(outputs_), 0.0), size = y;
        int64_t ranks = 0;
        std::vector<float> x, sizes;
        for (int32_t c = 0; c < columns_; ++c) {
          x.push_back(bf16_to_f32(x_[static_cast<size_t>(row * x_stride() + c)]));
          sizes.push_back(std::abs(x.back()));
        }
        for (size_t i = 0; i < part_rows_.size() && group.slot >= 0; ++i) {
          const Part& part = variants_[static_cast<size_t>(group.slot)].parts[i];
          if (part.rank == 0) continue;
          ranks = std::max<int64_t>(ranks, part.rank);
          const auto product = [&](const std::vector<float>& a, const std::vector<float>& b,
                                   const std::vector<float>& of) {
            return ref::low_rank_product({part.rank, part.scale, a.data(), b.data()}, of.data(),
                                         part_rows_[i], columns_);
          };
          const auto values = product(part.a, part.b, x);
          const auto magnitudes = product(absolute(part.a), absolute(part.b), sizes);
          for (int32_t o = 0; o < part_rows_[i]; ++o) {
            y[static_cast<size_t>(output_of(i, o))] = values[static_cast<size_t>(o)];
            size[static_cast<size_t>(output_of(i, o))] = magnitudes[static_cast<size_t>(o)];
          }
        }
        // Both chains in fp32, the scale, and t's split into two bf16; then the sum with what was
        // there.
        const double u = std::ldexp(1, -24), steps = static_cast<double>(columns_ + 2 * ranks + 16);
        const double relative = steps * u / (1 - steps * u) + std::ldexp(1, -16);
        for (int32_t o = 0; o < outputs_; ++o) {
          const auto at = static_cast<size_t>(row * outputs_ + o), output = static_cast<size_t>(o);
          const double want = initial_[at] + y[output];
          double error = relative * size[output];
          error += u * (std::abs(want) + error);
          if (size[output] == 0) error = 0;
          if (!(std::abs(out[at] - want) <= error)) {
            return "row " + std::to_string(row) + " output " + std::to_string(o) + " is " +
                   std::to_string(out[at]) + ", not " + std::to_string(want) + " ± " +
                   std::to_string(error);
          }
        }
      }
    }
    return "";
  }

 private:
  struct Part {
    int32_t rank;
    float scale;
    std::vector<float> a, b;  // [rank, columns], [rows, rank]
  };
  struct Variant {
    LowRankSlot slot{};
    std::vector<Part> parts;
    std::unique_ptr<emulator::DeviceBuffer<uint16_t>> a, b;
    std::unique_ptr<emulator::DeviceBuffer<float>> scale;
  };

  static int32_t tiles_of(int32_t rows) { return (rows + 15) / 16; }
  static std::vector<float> absolute(std::vector<float> values) {
    for (float& v : values) v = std::abs(v);
    return values;
  }
  int32_t a_stride() const { return (columns_ + 31) / 32 * 32; }
  int32_t x_stride() const { return (columns_ + 7) / 8 * 8; }
  int32_t first_tile(size_t part) const {
    if (interleaved_) return static_cast<int32_t>(part);
    int32_t tile = 0;
    for (size_t i = 0; i < part; ++i) tile += tiles_of(part_rows_[i]);
    return tile;
  }
  int32_t output_of(size_t part, int32_t row) const {
    const int32_t step = interleaved_ ? static_cast<int32_t>(part_rows_.size()) : 1;
    return 16 * (first_tile(part) + row / 16 * step) + row % 16;
  }

  const std::vector<int32_t> part_rows_;
  const bool interleaved_;
  const int32_t columns_;
  int32_t outputs_ = 0;
  std::mt19937 random_;
  std::vector<Variant> variants_;
  std::vector<RowGroup> groups_;
  std::vector<uint16_t> x_;
  std::vector<float> initial_;
};

}  // namespace deltad::cuda
