// One weight and variants of it on the emulated device, or as PTX: repacked there from row-major
// data, which is kept for the oracle (kernels/ref/linear.h), and run through the decode kernel.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "kernels/cuda/linear_decode.h"
#include "tests/kernels/cuda/launcher.h"
#include "tests/support/cuda_on_cpu/global_memory.h"

namespace deltad::cuda {

// A weight of one or several parts, each row-major; parts follow each other, or take turns in tiles
// of 16 rows.
struct WeightShape {
  std::vector<int32_t> part_rows;
  int32_t columns;
  bool interleaved = false;

  int32_t outputs() const;  // of the fused weight, padding included
  TileRows place(size_t part) const;
  int32_t output_of(size_t part, int32_t row) const;
};

class DecodeCase {
 public:
  explicit DecodeCase(WeightShape shape, uint32_t seed = 1, Launcher launcher = &emulate);

  // α is about `alpha` (the mean |W| is 0.02), one a row or, with `one_alpha`, one for all; the
  // second level's is a third. Returns the slot; a variant without levels does nothing to this
  // weight.
  int32_t add_variant(int32_t levels, double alpha, bool one_alpha = false) {
    return add_variant(shape_, levels, alpha, one_alpha);
  }
  // Makes the α of one part of a variant so many times as large.
  void scale_alpha(int32_t slot, size_t part, float factor);
  // A variant with a weight instead of the base's: of a weight of one part, `rows` rows; of
  // several, with those parts replaced that `replaced` says, the others being the base's. With
  // signs on top.
  int32_t add_dense(int32_t rows, int32_t levels = 0, double alpha = 0);
  int32_t replace_parts(const std::vector<bool>& replaced, int32_t levels = 0, double alpha = 0);
  // [m, columns], values that bf16 can hold; some rows with outliers.
  std::vector<float> random_rows(int32_t m);

  struct Run {
    emulator::Report report;  // with the faults of all kernels of the run
    std::vector<float> out;   // [m, width], or [m, width / 2] gated; width: of the widest in use
  };
  // Rows of x in groups, from the first on; out starts as `initial` or as poison. levels: the most
  // of a row's variant if not told; splits: as the shape says if not told.
  struct Call {
    LinearEpilogue epilogue = LinearEpilogue::kStore;
    const std::vector<float>* initial = nullptr;
    int32_t splits = 0;
    int32_t spare_tiles = 0;  // of rows, launched for dense weights beyond those that there are
    const RopeAppendParams* rope = nullptr;  // with kRotary; Run::out is empty then
    emulator::Options options = {};
  };
  Run run(const std::vector<float>& x, const std::vector<RowGroup>& groups, const Call& call);
  Run run(const std::vector<float>& x, const std::vector<RowGroup>& groups) {
    return run(x, groups, Call());
  }

  // What the oracle says of a row before the epilogue, and how far from it fp32 and 16-bit integers
  // may be: [the row's outputs], 0 in the padding.
  struct Expected {
    std::vector<double> y, error;
    // The signs' part of y, and how far y may be from what the weight alone gave and this part.
    std::vector<double> delta, delta_error;
  };
  Expected expected(const float* x, int32_t slot) const;

  const WeightShape& shape() const { return shape_; }
  // Of the base and all weights in its place.
  int32_t widest(const std::vector<RowGroup>& groups) const;
  // Row-major data of a part, and the fused tiles made of it.
  const std::vector<uint16_t>& part(size_t p) const { return base_.parts[p]; }
  const emulator::DeviceBuffer<uint16_t>& tiles() const { return *base_.tiles; }
  // What the variants do to the weight: signs and α on the device.
  std::vector<SignSlot> slots() const;

 private:
  struct Level {
    std::vector<std::vector<int8_t>> signs;  // [part][rows · columns]
    std::vector<std::vector<float>> alpha;   // [part][rows]
    std::unique_ptr<emulator::DeviceBuffer<uint2>> tiles;
    std::unique_ptr<emulator::DeviceBuffer<float>> device_alpha;
  };

  struct Weight {
    WeightShape shape;
    std::vector<std::vector<uint16_t>> parts;  // row-major
    std::unique_ptr<emulator::DeviceBuffer<uint16_t>> tiles;
  };
  struct Variant {
    std::vector<Level> levels;
    std::unique_ptr<Weight> dense;
  };

  std::vector<uint16_t> random_part(int32_t rows);
  Weight make_weight(const WeightShape& shape, std::vector<std::vector<uint16_t>> parts);
  int32_t add_variant(const WeightShape& shape, int32_t levels, double alpha, bool one_alpha);
  const Variant* variant(int32_t slot) const {
    return slot < 0 ? nullptr : &variants_[static_cast<size_t>(slot)];
  }
  const Weight& weight_of(int32_t slot) const {
    return slot >= 0 && variant(slot)->dense ? *variant(slot)->dense : base_;
  }

  template <class Params>
  emulator::Report launch(const char* kernel, const Launch& shape, const Params& params,
                          const emulator::Options& options) const {
    return launcher_(kernel, shape, std::as_bytes(std::span(&params, 1)), options);
  }

  const WeightShape shape_;
  const Launcher launcher_;
  std::mt19937 random_;
  Weight base_;
  std::vector<Variant> variants_;
};

// x [rows, columns] as kernels take it, each row padded with zeros to bf16_stride().
constexpr int32_t bf16_stride(int32_t columns) { return (columns + 7) / 8 * 8; }
std::vector<uint16_t> rows_as_bf16(const std::vector<float>& x, int32_t rows, int32_t columns);
// What silu(gate) · up makes of a row: result o, and how far from it bf16 may be.
std::pair<double, double> gated_expected(const DecodeCase::Expected& want, int32_t o);

// Groups over m rows: sizes drawn at random, slots from `slots` in rising order, −1 first.
std::vector<RowGroup> random_groups(int32_t m, const std::vector<int32_t>& slots,
                                    std::mt19937& random);

}  // namespace deltad::cuda
