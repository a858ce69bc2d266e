// What goes into the decode kernel: a part of a weight, its signs, and activations, with what is
// wrong with their repacked form, element by element as linear_tiles.h says. For the emulator's
// tests and those of the PTX; run() launches by launch(kernel, Launch, parameters).
#pragma once

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "kernels/cuda/repack.h"
#include "kernels/cuda/sign_planes.h"
#include "tensor/float16.h"
#include "tests/support/cuda_on_cpu/global_memory.h"
#include "tests/support/cuda_on_cpu/vector_types.h"

namespace deltad::cuda {

// A part of 21 rows, the second of two that take turns, so that it lies in outputs 16-31 and 48-63;
// its columns end within a pair, a byte, a step and a chunk.
struct RepackCase {
  static constexpr int32_t kRows = 21, kColumns = 301, kOutputs = 64;
  static constexpr TileRows kPlace = {1, 2};

  static int32_t output_of(int32_t row) { return 16 * (1 + 2 * (row / 16)) + row % 16; }
  static std::string at_fault(const char* what, int32_t row, int32_t column) {
    return std::string(what) + " of row " + std::to_string(row) + ", column " +
           std::to_string(column);
  }
};

struct RepackBaseCase : RepackCase {
  RepackBaseCase() {
    for (int32_t i = 0; i < kRows * kColumns; ++i) in.push_back(static_cast<uint16_t>(1 + i));
  }

  template <class LaunchKernel>
  std::vector<uint16_t> run(LaunchKernel launch) const {
    const emulator::DeviceBuffer<uint16_t> from("in", in);
    const emulator::DeviceBuffer<uint16_t> out(
        "out", static_cast<size_t>(8 * base_tiles_size(kOutputs, kColumns)),
        emulator::Access::kWrite);
    const RepackBaseParams p = {from.data(), out.data(), kRows, kColumns, kPlace};
    launch(kRepackBaseKernel, repack_base_launch(p), p);
    return out.values();
  }

  std::string wrong(const std::vector<uint16_t>& out) const {
    const int32_t chunks = chunks_of(kColumns);
    std::vector<uint16_t> want(out.size(), 0xffff);  // the other part's tiles are left alone
    for (int32_t row = 0; row < 32; ++row) {
      for (int32_t c = 0; c < chunks * kChunk; ++c) {
        const int32_t o = output_of(row), step = c % kChunk / kStep, k = c % kStep;
        const int32_t lane = o % 8 * 4 + k % 8 / 2, element = k / 8 * 2 + k % 2;
        const auto at = static_cast<size_t>(
            (((o / 8 * chunks + c / kChunk) * kChunkSteps + step) * 32 + lane) * 8 + element);
        const bool there = row < kRows && c < kColumns;
        want[at] = there ? in[static_cast<size_t>(row * kColumns + c)] : uint16_t{0};
        if (out[at] != want[at]) return at_fault("weight", row, c);
      }
    }
    return out == want ? "" : "tiles of the other part";
  }

  std::vector<uint16_t> in;
};

struct RepackSignsCase : RepackCase {
  RepackSignsCase() {
    std::mt19937 random(2);
    for (int32_t row = 0; row < kRows; ++row) {
      for (int32_t byte = 0; byte < (kColumns + 7) / 8; ++byte) {
        const bool last = byte == kColumns / 8;
        in.push_back(static_cast<uint8_t>(random()) & (last ? (1u << kColumns % 8) - 1 : 0xff));
      }
    }
  }

  template <class LaunchKernel>
  std::vector<uint32_t> run(LaunchKernel launch) const {
    const emulator::DeviceBuffer<uint8_t> from("in", in);
    const emulator::DeviceBuffer<uint32_t> out(
        "out", static_cast<size_t>(2 * sign_tiles_size(kOutputs, kColumns)),
        emulator::Access::kWrite);
    const RepackSignsParams p = {from.data(), out.data(), kRows, kColumns, kPlace};
    launch(kRepackSignsKernel, repack_signs_launch(p), p);
    return out.values();
  }

  std::string wrong(const std::vector<uint32_t>& out) const {
    const int32_t chunks = chunks_of(kColumns);
    for (int32_t row = 0; row < 32; ++row) {
      for (int32_t c = 0; c < chunks * kChunk; ++c) {
        const int32_t o = output_of(row), k = c % kChunk;
        const int32_t lane = o % 8 * 4 + k % 128 / 32;
        const auto at =
            static_cast<size_t>(((o / 8 * chunks + c / kChunk) * 32 + lane) * 2 + k / 128);
        const bool there = row < kRows && c < kColumns;
        const auto byte = static_cast<size_t>(row * ((kColumns + 7) / 8) + c / 8);
        const uint32_t want = there ? in[byte] >> (c % 8) & 1u : 0u;
        if ((out[at] >> (k % 32) & 1) != want) return at_fault("sign", row, c);
      }
    }
    return "";
  }

  std::vector<uint8_t> in;
};

struct SignPlanesCase {
  // Two blocks' columns.
  static constexpr int32_t kRows = 3, kColumns = 2101, kStride = 2104;

  // Normal, with an outlier, all zero.
  SignPlanesCase() {
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    for (int32_t row = 0; row < kRows; ++row) {
      for (int32_t c = 0; c < kStride; ++c) {
        const bool zero = row == 2 || c >= kColumns;
        const float v = zero ? 0 : normal(random) * (row == 1 && c == 2100 ? 90.0f : 1.0f);
        x.push_back(f32_to_bf16(v));
      }
    }
  }

  struct Output {
    std::vector<uint32_t> planes;
    std::vector<float> scale;
    std::vector<int32_t> sum;
    bool operator==(const Output& other) const = default;
  };

  template <class LaunchKernel>
  Output run(LaunchKernel launch) const {
    using emulator::Access;
    const emulator::DeviceBuffer<uint16_t> from("x", x, Access::kFresh);
    const emulator::DeviceBuffer<uint32_t> planes(
        "planes", static_cast<size_t>(4 * planes_size(kRows, kColumns)), Access::kWrite);
    const emulator::DeviceBuffer<float> scale("scale", kRows, Access::kWrite);
    const emulator::DeviceBuffer<int32_t> sum("sum", kRows, Access::kWrite);
    const SignPlanesParams p = {from.data(), planes.data(), scale.data(), sum.data(),
                                kStride,     kRows,         kColumns};
    launch(kSignPlanesKernel, sign_planes_launch(p), p);
    return {planes.values(), scale.values(), sum.values()};
  }

  std::string wrong(const Output& got) const {
    const int32_t chunks = chunks_of(kColumns);
    for (int32_t row = 0; row < kRows; ++row) {
      const auto at = [&](int32_t c) {
        return double{bf16_to_f32(x[static_cast<size_t>(row * kStride + c)])};
      };
      double largest = 0;
      for (int32_t c = 0; c < kColumns; ++c) largest = std::max(largest, std::abs(at(c)));
      const double scale = double{got.scale[static_cast<size_t>(row)]};
      if (!(std::abs(scale - largest / 32767) <= std::ldexp(scale, -23))) {
        return RepackCase::at_fault("scale", row, 0);
      }
      int32_t sum = 0;
      for (int32_t c = 0; c < chunks * kChunk; ++c) {
        int32_t q = 0;
        for (int32_t plane = 0; plane < 16; ++plane) {
          const int32_t k = c % kChunk, lane = plane % 8 * 4 + k % 128 / 32;
          const int32_t word = plane / 8 + k / 128 * 2;
          const auto place =
              static_cast<size_t>(((row * chunks + c / kChunk) * 32 + lane) * 4 + word);
          q |= static_cast<int32_t>(got.planes[place] >> (k % 32) & 1) << plane;
        }
        q = static_cast<int16_t>(q);
        sum += q;
        const double v = c < kColumns ? at(c) : 0;
        // Half a step, and what fp32 adds to it.
        const double error = 0.5 * scale + std::ldexp(std::abs(v), -22);
        if (!(std::abs(q * scale - v) <= error)) return RepackCase::at_fault("integer", row, c);
      }
      if (got.sum[static_cast<size_t>(row)] != sum) return RepackCase::at_fault("sum", row, 0);
    }
    return "";
  }

  std::vector<uint16_t> x;
};

}  // namespace deltad::cuda
