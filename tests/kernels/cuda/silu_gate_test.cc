// The gate as a kernel of its own, on the emulator against the oracle.
#include "kernels/cuda/silu_gate.h"

#include <gtest/gtest.h>

#include "tests/kernels/cuda/decode_case.h"
#include "tests/kernels/cuda/mutations.h"
#include "tests/kernels/cuda/overlapping.h"
#include "tests/kernels/cuda/silu_gate_case.h"
#include "tests/support/cuda_on_cpu/launch.h"

namespace deltad::cuda {

extern "C" void deltad_silu_gate(SiluGateParams p);

namespace {

using emulator::DeviceBuffer;

auto emulated(const emulator::Options& options, emulator::Report* report) {
  return launch_overlapping(deltad_silu_gate, options, report);
}

TEST(SiluGate, EqualsTheOracle) {
  for (const int32_t columns : {16, 48, 1536}) {
    const SiluGateCase c(columns);
    emulator::Report report;
    const auto out = c.run(emulated({.order = emulator::Order::kRandom}, &report));
    ASSERT_TRUE(report.ok()) << report.text();
    EXPECT_EQ(c.wrong(out), "");
  }
}

TEST(SiluGateSites, AllMatter) {
  const SiluGateCase c(528);
  expect_every_site_matters([&](const emulator::Options& options, emulator::Report* report) {
    return c.run(emulated(options, report));
  });
}

// A row beside one with low-rank factors takes this way instead of the fused one.
TEST(SiluGate, GivesTheBitsOfTheFusedEpilogue) {
  DecodeCase layer({{40, 40}, 520, true});
  const int32_t outputs = layer.shape().outputs(), rows = 3;
  const std::vector<float> x = layer.random_rows(rows);
  const std::vector<RowGroup> groups = {{0, rows, -1}};
  const DecodeCase::Run fused = layer.run(x, groups, {.epilogue = LinearEpilogue::kSiluGate});
  const DecodeCase::Run plain = layer.run(x, groups);
  DeviceBuffer<float> in("in", plain.out);
  DeviceBuffer<uint16_t> out("out", fused.out.size(), emulator::Access::kWrite);
  const SiluGateParams p = {in.data(), out.data(), outputs, outputs / 2, rows, outputs / 2};
  const emulator::Report report = emulator::launch(deltad_silu_gate, silu_gate_launch(p), p);
  ASSERT_TRUE(report.ok()) << report.text();
  for (size_t i = 0; i < fused.out.size(); ++i) EXPECT_EQ(bf16_to_f32(out[i]), fused.out[i]);
}

}  // namespace
}  // namespace deltad::cuda
