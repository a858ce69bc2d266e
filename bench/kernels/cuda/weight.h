// A random weight on the card with variants of it, and rows to multiply it with: what the
// benchmarks of the linear kernels share. There are as many copies of the weight as caches take to
// forget the first. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "bench/kernels/cuda/bench.h"
#include "kernels/cuda/linear_decode.h"
#include "kernels/cuda/row_groups.h"

namespace deltad::bench {

struct Named {
  const char* name;
  int32_t outputs, columns;
};
// Of an 8B model; `quick`: one that is tiny.
std::vector<Named> matrices(bool quick);

// A table's cell: the ratio of a time to cuBLASLt's (0: there is none).
std::string against_cublas(double seconds, double cublas_seconds);

class Weight {
 public:
  // Mean |W| 0.02; each variant one level of signs, with this α for all outputs.
  Weight(Card& card, int32_t outputs, int32_t columns, int32_t variants, int32_t most_rows,
         float alpha);

  int32_t outputs() const { return outputs_; }
  int32_t columns() const { return columns_; }
  int copies() const { return static_cast<int>(tiles_.size()); }
  // Of the copy that a call takes.
  const void* tiles(int call) const { return tiles_[copy(call)].data(); }
  const cuda::SignSlot* slots(int call) const { return slots_[copy(call)].as<cuda::SignSlot>(); }
  // [most_rows, columns], bf16.
  const uint16_t* x() const { return x_on_card_.as<uint16_t>(); }
  // Rows in turn of `variants` groups of about the same size, or of the base.
  static std::vector<cuda::RowGroup> row_groups(int32_t rows, int32_t variants);
  const cuda::RowGroups* groups(int32_t rows, int32_t variants);

  // What a row's output should be, the variant's part of it, and how far sums in fp32 may be from
  // it; variant −1: the base.
  struct Expected {
    double y, delta, rounding;
  };
  Expected expected(int32_t row, int32_t output, int32_t variant) const;
  // Of cuBLASLt's product with the base's weight, having checked its first result; 0 if there is no
  // cuBLASLt.
  double cublas_seconds(int32_t rows);

 private:
  size_t copy(int call) const { return static_cast<size_t>(call % copies()); }

  Card& card_;
  const int32_t outputs_, columns_;
  const float alpha_value_;
  std::vector<uint16_t> w_;                                     // [outputs, columns]
  std::vector<uint16_t> x_;                                     // [most_rows, columns]
  std::vector<std::vector<uint8_t>> bits_;                      // [variants][outputs, columns / 8]
  std::vector<DeviceMemory> tiles_;                             // [copies]
  std::vector<std::vector<DeviceMemory>> signs_;                // [copies][variants]
  std::vector<DeviceMemory> slots_;                             // [copies]
  std::map<std::pair<int32_t, int32_t>, DeviceMemory> groups_;  // by rows and variants
  DeviceMemory x_on_card_, alpha_;
};

}  // namespace deltad::bench
