// Tests of the backend on a real card: what they ask of the emulated GPU has nothing to tell
// here. Without a card the program says why and ends with 77, which ctest counts as skipped.
// $DELTAD_GOLDEN_FOLDER: tests/golden, where it is in another place than it was in the build.
#include <gtest/gtest.h>

#include <cstdio>

#include "backend/cuda/cuda_backend.h"
#include "tests/support/cuda_on_cpu/runtime/emulated_gpu.h"

namespace deltad::emulated_gpu {

void reset(const Options&) {}
std::string report() { return ""; }
std::string leaks() { return ""; }
size_t allocated_bytes(int) { return 0; }
size_t pinned_bytes() { return 0; }

}  // namespace deltad::emulated_gpu

int main(int argc, char** argv) {
  const auto backend = deltad::make_cuda_backend({0, 1});
  if (!backend.ok()) {
    std::printf("nothing is run: %s\n", std::string(backend.status().message()).c_str());
    return backend.status().code() == deltad::Code::kUnavailable ? 77 : 1;
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
