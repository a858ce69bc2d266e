// Runs kernels' machine code on the card of this machine, in buffers of managed memory. Without a
// card the program ends with 77, which ctest counts as skipped.
#include <gtest/gtest.h>

#include <cstdio>

#include "tests/kernels/cuda/card/card.h"
#include "tests/kernels/cuda/ptx/kernel.h"

namespace deltad::cuda {

bool can_run(const std::string& arch) { return arch == card_architecture(); }

ptx::Outcome PtxFile::run(const char* kernel, const Launch& shape,
                          std::span<const std::byte> params, const ptx::Options&, bool) {
  ptx::Outcome out;
  const std::string wrong = run_on_card(path_ + ".cubin", kernel, shape, params);
  if (!wrong.empty()) out.fault = ptx::Fault{.what = wrong, .kernel = kernel};
  return out;
}

}  // namespace deltad::cuda

int main(int argc, char** argv) {
  if (deltad::cuda::card_architecture().empty()) {
    std::puts("no CUDA card: nothing is run");
    return 77;
  }
  deltad::emulator::set_buffer_memory(deltad::cuda::take_managed, deltad::cuda::give_back_managed);
  GTEST_FLAG_SET(filter, "-*Sites*:*IsNeeded*");  // what weakens a kernel is for the interpreter
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
