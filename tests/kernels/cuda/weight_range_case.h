// A weight whose exponents are counted: more units than a block has threads, and not a multiple.
#pragma once

#include <random>
#include <vector>

#include "kernels/cuda/linear_prefill_range.h"
#include "tests/support/cuda_on_cpu/global_memory.h"

namespace deltad::cuda {

struct WeightRangeCase {
  static constexpr int kUnits = 300;

  WeightRangeCase() {
    std::mt19937 random(7);
    for (int i = 0; i < kUnits * 8; ++i) {
      w.push_back(i % 5 == 0 ? static_cast<uint16_t>(i % 2 << 15)  // zeros of both signs
                             : static_cast<uint16_t>(random()));
    }
  }

  // launch(name, shape, parameters). One block: it goes round.
  template <class LaunchKernel>
  std::vector<uint32_t> run(LaunchKernel launch) const {
    using emulator::Access;
    const emulator::DeviceBuffer<uint16_t> from("w", w);
    const emulator::DeviceBuffer<uint32_t> counts("counts", std::vector<uint32_t>(256, 0),
                                                  Access::kWrite);
    const WeightRangeParams p = {from.data(), counts.data(), kUnits};
    Launch shape = weight_range_launch(p);
    shape.grid.x = 1;
    launch(kWeightRangeKernel, shape, p);
    return counts.values();
  }

  std::vector<uint32_t> expected() const {
    std::vector<uint32_t> want(256, 0);
    for (uint16_t v : w) {
      if ((v & 0x7fff) != 0) ++want[v >> 7 & 0xff];
    }
    return want;
  }

  std::vector<uint16_t> w;
};

}  // namespace deltad::cuda
