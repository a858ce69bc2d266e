// Repacked weights and bit planes of activations, on the emulator.
#include <gtest/gtest.h>

#include "tests/kernels/cuda/mutations.h"
#include "tests/kernels/cuda/repack_case.h"
#include "tests/support/cuda_on_cpu/launch.h"

namespace deltad::cuda {

extern "C" {
void deltad_repack_base(RepackBaseParams p);
void deltad_repack_signs(RepackSignsParams p);
void deltad_sign_planes(SignPlanesParams p);
}

namespace {

// The case is right, and needs every site of the kernel. Repacking is no part of a step.
template <class Case, class Params>
void expect_right(void (*kernel)(Params), bool of_a_step) {
  const Case c;
  const auto run = [&](emulator::Options options, emulator::Report* report) {
    options.overlaps_previous = of_a_step;
    return c.run([&](const char*, const Launch& shape, const Params& p) {
      *report = emulator::launch(kernel, shape, p, options);
    });
  };
  emulator::Report report;
  const auto out = run({}, &report);
  ASSERT_TRUE(report.ok()) << report.text();
  EXPECT_EQ(c.wrong(out), "");
  expect_every_site_matters(run);
}

TEST(RepackBase, PutsEachElementInItsFragment) {
  expect_right<RepackBaseCase>(deltad_repack_base, false);
}
TEST(RepackSigns, PutsEachBitInItsFragment) {
  expect_right<RepackSignsCase>(deltad_repack_signs, false);
}
TEST(SignPlanes, AreTheRoundedActivationsBits) {
  expect_right<SignPlanesCase>(deltad_sign_planes, true);
}

}  // namespace
}  // namespace deltad::cuda
