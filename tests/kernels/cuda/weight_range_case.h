// A weight whose exponents are counted, by tiles of 16 outputs: two of 256 columns, of which 200
// count.
#pragma once

#include <random>
#include <vector>

#include "kernels/cuda/linear_prefill_range.h"
#include "tests/support/cuda_on_cpu/global_memory.h"

namespace deltad::cuda {

struct WeightRangeCase {
  static constexpr int32_t kOutputs = 32, kColumns = 200;
  static constexpr size_t kTiles = 2, kTileValues = 16 * 256;

  WeightRangeCase() {
    std::mt19937 random(7);
    for (size_t i = 0; i < kTiles * kTileValues; ++i) {
      w.push_back(i % 5 == 0 ? static_cast<uint16_t>(i % 2 << 15)  // zeros of both signs
                             : static_cast<uint16_t>(random()));
    }
  }

  // launch(name, shape, parameters)
  template <class LaunchKernel>
  std::vector<uint32_t> run(LaunchKernel launch) const {
    using emulator::Access;
    const emulator::DeviceBuffer<uint16_t> from("w", w);
    const emulator::DeviceBuffer<uint32_t> counts("counts", kTiles * 256, Access::kWrite);
    const WeightRangeParams p = {from.data(), counts.data(), kOutputs, kColumns};
    launch(kWeightRangeKernel, weight_range_launch(p), p);
    return counts.values();
  }

  std::vector<uint32_t> expected() const {
    std::vector<uint32_t> want(kTiles * 256, 0);
    for (size_t i = 0; i < w.size(); ++i) {
      if ((w[i] & 0x7fff) != 0) ++want[i / kTileValues * 256 + (w[i] >> 7 & 0xff)];
    }
    return want;
  }

  std::vector<uint16_t> w;
};

}  // namespace deltad::cuda
