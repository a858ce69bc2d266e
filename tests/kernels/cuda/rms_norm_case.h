// A batch for RMSNorm and its oracle in fp64, for the emulator's tests and those of the PTX.
#pragma once

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "kernels/cuda/rms_norm.h"
#include "kernels/ref/norm.h"
#include "tensor/float16.h"
#include "tests/kernels/cuda/part_of_groups.h"
#include "tests/support/cuda_on_cpu/global_memory.h"

namespace deltad::cuda {

// Rows of a base and of two variants; the first has a norm of its own.
struct RmsNormCase {
  static constexpr float kEps = 1e-5f;

  RmsNormCase(int32_t rows, int32_t columns) : rows(rows), columns(columns) {
    std::mt19937 random(static_cast<unsigned>(rows * 7919 + columns));
    std::normal_distribution<float> normal;
    for (int i = 0; i < rows * columns; ++i) x.push_back(normal(random));
    for (auto* w : {&weight, &own_weight}) {
      for (int i = 0; i < columns; ++i) w->push_back(f32_to_bf16(1 + normal(random) / 2));
    }
    const int32_t a = rows / 3, b = rows - rows / 3;
    groups.group[groups.count++] = {0, a, -1};
    groups.group[groups.count++] = {a, b, 0};
    groups.group[groups.count++] = {b, rows, 1};
  }

  // Rows [first, end) alone, as `launch` (a Launch, the parameters) runs them; bf16 out
  // [end − first, columns].
  template <class LaunchKernel>
  std::vector<uint16_t> run(int32_t first, int32_t end, LaunchKernel launch) const {
    using emulator::Access;
    using emulator::DeviceBuffer;
    const RowGroups some = part_of_groups(groups, first, end);
    DeviceBuffer<float> x_buffer(
        "x", std::vector<float>(x.begin() + first * columns, x.begin() + end * columns),
        Access::kFresh);
    DeviceBuffer<uint16_t> w("weight", weight), own("own weight", own_weight);
    DeviceBuffer<const uint16_t*> slots("slots", std::vector<const uint16_t*>{own.data(), nullptr},
                                        Access::kFresh);
    DeviceBuffer<RowGroups> group_buffer("groups", std::vector<RowGroups>{some}, Access::kFresh);
    DeviceBuffer<uint16_t> out("out", static_cast<size_t>((end - first) * columns), Access::kWrite);
    const RmsNormParams p = {x_buffer.data(), w.data(), slots.data(), group_buffer.data(),
                             out.data(),      columns,  columns,      end - first,
                             columns,         kEps};
    launch(rms_norm_launch(p), p);
    return out.values();
  }

  // What is wrong with the output of all rows; "" if nothing is.
  std::string wrong(const std::vector<uint16_t>& out) const {
    // fp32: a thread's chain, five levels of lanes and eight warps, halved by the root; then the
    // quotient, the root and two products. The result is rounded to bf16.
    const double steps = ((columns / 256.0 + 4) + 5 + 8) / 2 + 5, u = std::ldexp(1, -24);
    const double gamma = steps * u / (1 - steps * u);
    const double bound = gamma + std::ldexp(1, -8) * (1 + gamma);
    for (int32_t row = 0; row < rows; ++row) {
      const std::vector<double> values(x.begin() + row * columns, x.begin() + (row + 1) * columns);
      std::vector<double> w;
      for (uint16_t v : slot_of(groups, row) == 0 ? own_weight : weight)
        w.push_back(bf16_to_f32(v));
      const std::vector<double> expected = ref::rms_norm(values, w, kEps);
      for (int32_t i = 0; i < columns; ++i) {
        const double want = expected[static_cast<size_t>(i)];
        const double got = bf16_to_f32(out[static_cast<size_t>(row * columns + i)]);
        if (!(std::abs(got - want) <= bound * std::abs(want))) {
          return "row " + std::to_string(row) + " column " + std::to_string(i) + " is " +
                 std::to_string(got) + ", not " + std::to_string(want);
        }
      }
    }
    return "";
  }

  int32_t rows, columns;
  std::vector<float> x;
  std::vector<uint16_t> weight, own_weight;
  RowGroups groups{};
};

}  // namespace deltad::cuda
