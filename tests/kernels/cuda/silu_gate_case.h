// Rows of gates and ups and their oracle: for the emulator's tests and those of the PTX.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "kernels/cuda/silu_gate.h"
#include "kernels/ref/linear.h"
#include "tensor/float16.h"
#include "tests/support/cuda_on_cpu/global_memory.h"

namespace deltad::cuda {

struct SiluGateCase {
  static constexpr int32_t kRows = 3;

  explicit SiluGateCase(int32_t columns) : columns(columns) {
    std::mt19937 random(static_cast<unsigned>(columns));
    std::normal_distribution<float> normal;
    for (int32_t i = 0; i < kRows * 2 * columns; ++i) in.push_back(4 * normal(random));
  }

  template <class LaunchKernel>
  std::vector<uint16_t> run(LaunchKernel launch) const {
    using emulator::Access;
    using emulator::DeviceBuffer;
    DeviceBuffer<float> in_buffer("in", in, Access::kFresh);
    DeviceBuffer<uint16_t> out("out", static_cast<size_t>(kRows * columns), Access::kWrite);
    const SiluGateParams p = {in_buffer.data(), out.data(), 2 * columns, columns, kRows, columns};
    launch(kSiluGateKernel, silu_gate_launch(p), p);
    return out.values();
  }

  // What is wrong with the output; "" if nothing is.
  std::string wrong(const std::vector<uint16_t>& out) const {
    for (int32_t row = 0; row < kRows; ++row) {
      for (int32_t i = 0; i < columns; ++i) {
        const auto gate = static_cast<size_t>(row * 2 * columns + i / 16 * 32 + i % 16);
        const double want = ref::silu(in[gate]) * in[gate + 16];
        const double got = bf16_to_f32(out[static_cast<size_t>(row * columns + i)]);
        // expf (2 units), a sum, a quotient and a product of fp32; one rounding to bf16.
        const double error = 6 * std::ldexp(1, -24) + std::ldexp(1, -8) * (1 + 1e-6);
        if (!(std::abs(got - want) <= error * std::abs(want))) {
          return "row " + std::to_string(row) + " column " + std::to_string(i) + " is " +
                 std::to_string(got) + ", not " + std::to_string(want);
        }
      }
    }
    return "";
  }

  int32_t columns;
  std::vector<float> in;
};

}  // namespace deltad::cuda
