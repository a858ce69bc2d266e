// Runs kernels' machine code on the card of this machine, in buffers of managed memory. Without a
// card that can run it the program says why and ends with 77, which ctest counts as skipped.
// $DELTAD_KERNELS: the folder with the kernels, where it is another than in the build.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "tests/kernels/cuda/card/card.h"
#include "tests/kernels/cuda/ptx/kernel.h"

namespace deltad::cuda {

bool can_run(const std::string& arch) { return arch == card_architecture(); }

std::string kernel_folder() {
  const char* folder = std::getenv("DELTAD_KERNELS");
  return folder != nullptr ? folder : DELTAD_PTX;
}

Share share_of(const std::string&, size_t) { return {0, 1}; }

ptx::Outcome PtxFile::run(const char* kernel, const Launch& shape,
                          std::span<const std::byte> params, const ptx::Options&, bool) {
  ptx::Outcome out;
  const std::string wrong = run_on_card(path_ + ".cubin", kernel, shape, params);
  if (!wrong.empty()) out.fault = ptx::Fault{.what = wrong, .kernel = kernel};
  return out;
}

namespace {

// "" if the card runs one of the architectures that kernels are compiled for.
std::string why_not() {
  const std::string problem = card_problem();
  if (!problem.empty()) return problem;
  for (const char* arch : ptx::kArchitectures)
    if (can_run(arch)) return "";
  return "there are no kernels for this card, which is " + card_architecture();
}

}  // namespace
}  // namespace deltad::cuda

int main(int argc, char** argv) {
  const std::string why_not = deltad::cuda::why_not();
  if (!why_not.empty()) {
    std::printf("nothing is run: %s\n", why_not.c_str());
    return 77;
  }
  deltad::emulator::set_buffer_memory(deltad::cuda::take_managed, deltad::cuda::give_back_managed);
  GTEST_FLAG_SET(filter, "-*Sites*:*IsNeeded*");  // what weakens a kernel is for the interpreter
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
