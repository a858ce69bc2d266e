#include "base/check.h"
#include "tests/kernels/cuda/launcher.h"
#include "tests/support/cuda_on_cpu/kernel_registry.h"

namespace deltad::cuda {

emulator::Report emulate(const char* kernel, const Launch& shape, std::span<const std::byte> params,
                         const emulator::Options& options) {
  const emulator::Kernel* found = emulator::KernelRegistry::instance().find(kernel);
  CHECK(found != nullptr, kernel);
  CHECK(params.size() == found->params_bytes, "parameters of another kernel");
  return found->run(shape, params.data(), options);
}

}  // namespace deltad::cuda
