// What stands for the CUDA backend in a program that was built without it.
#include "backend/cuda/cuda_backend.h"

namespace deltad {

Result<std::unique_ptr<Backend>> make_cuda_backend(const CudaBackendOptions&) {
  return unimplemented("this program was built without CUDA: there was no nvcc");
}

Result<CudaRanks> make_cuda_ranks(int, Duration, CommunicatorChoice, Duration) {
  return make_cuda_backend({}).status();
}

std::string describe_cuda() { return "CUDA: not built in"; }

}  // namespace deltad
