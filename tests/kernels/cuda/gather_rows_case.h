// Rows to gather, some of them twice: for the emulator's tests and those of the PTX.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "kernels/cuda/gather_rows.h"
#include "tests/support/cuda_on_cpu/global_memory.h"

namespace deltad::cuda {

struct GatherRowsCase {
  explicit GatherRowsCase(int32_t columns) : columns(columns) {
    std::mt19937 random(static_cast<unsigned>(columns));
    std::normal_distribution<float> normal;
    for (int32_t i = 0; i < 9 * columns; ++i) x.push_back(normal(random));
  }

  template <class LaunchKernel>
  std::vector<float> run(LaunchKernel launch) const {
    using emulator::Access;
    using emulator::DeviceBuffer;
    DeviceBuffer<float> x_buffer("x", x, Access::kFresh);
    DeviceBuffer<int32_t> row_buffer("rows", rows, Access::kFresh);
    DeviceBuffer<float> out("out", rows.size() * static_cast<size_t>(columns), Access::kWrite);
    const GatherRowsParams p = {x_buffer.data(), row_buffer.data(),
                                out.data(),      columns,
                                columns,         static_cast<int32_t>(rows.size()),
                                columns};
    launch(kGatherRowsKernel, gather_rows_launch(p), p);
    return out.values();
  }
  std::vector<float> expected() const {
    std::vector<float> out;
    for (const int32_t row : rows) {
      out.insert(out.end(), x.begin() + row * columns, x.begin() + (row + 1) * columns);
    }
    return out;
  }

  int32_t columns;
  std::vector<float> x;
  std::vector<int32_t> rows = {8, 0, 3, 3, 7};
};

}  // namespace deltad::cuda
