// Parts of a sum, of sizes so different that another order of adding gives other bits: for the
// emulator's tests and those of the PTX.
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "kernels/cuda/sum_parts.h"
#include "tests/support/cuda_on_cpu/global_memory.h"

namespace deltad::cuda {

struct SumPartsCase {
  SumPartsCase(int32_t count, int32_t columns, bool add)
      : count(count), columns(columns), add(add) {
    std::mt19937 random(static_cast<unsigned>(31 * columns + count));
    const auto value = [&] {
      return std::ldexp(static_cast<float>(random() % 4096) - 2048,
                        static_cast<int>(random() % 40) - 20);
    };
    parts.resize(static_cast<size_t>(count));
    for (auto& part : parts)
      for (int32_t i = 0; i < kRows * columns; ++i) part.push_back(value());
    for (int32_t i = 0; i < kRows * columns; ++i) before.push_back(value());
  }

  template <class LaunchKernel>
  std::vector<float> run(LaunchKernel launch) const {
    using emulator::Access;
    using emulator::DeviceBuffer;
    std::vector<std::unique_ptr<DeviceBuffer<float>>> buffers;
    SumPartsParams p{};
    for (const auto& part : parts) {
      buffers.push_back(std::make_unique<DeviceBuffer<float>>("part", part, Access::kFresh));
      p.parts[p.count++] = buffers.back()->data();
    }
    DeviceBuffer<float> out("out", before, Access::kWrite);
    p.out = out.data();
    p.part_stride = p.out_stride = columns;
    p.rows = kRows;
    p.columns = columns;
    p.add = add ? 1 : 0;
    launch(kSumPartsKernel, sum_parts_launch(p), p);
    return out.values();
  }
  // To the bit.
  std::vector<float> expected() const {
    std::vector<float> out;
    for (size_t i = 0; i < before.size(); ++i) {
      float sum = parts[0][i];
      for (size_t k = 1; k < parts.size(); ++k) sum += parts[k][i];
      out.push_back(add ? before[i] + sum : sum);
    }
    return out;
  }

  static constexpr int32_t kRows = 3;
  int32_t count, columns;
  bool add;
  std::vector<std::vector<float>> parts;
  std::vector<float> before;
};

}  // namespace deltad::cuda
