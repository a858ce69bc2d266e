// CudaKernels: the kernels of kernels/cuda, found by name and launched. Owned by CudaBackend; made
// once, then constant: any thread may launch.
#pragma once

#include <map>
#include <span>
#include <string_view>
#include <vector>

#include "backend/cuda/cuda_device.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/linear_prefill.h"

namespace deltad {

class CudaKernels {
 public:
  // kUnimplemented, naming the first kernel that this GPU cannot run.
  static Result<std::unique_ptr<CudaKernels>> load(CudaDevice& device);
  ~CudaKernels();
  CudaKernels(const CudaKernels&) = delete;

  // Those of linear layers of prompts that this GPU has: all give the same bits.
  std::span<const cuda::LinearPrefillKernel> prefill_kernels() const;

  // `name` is one of kernels/cuda's headers; params the struct that its kernel takes, read before
  // this returns.
  template <class Params>
  Status launch(cudaStream_t stream, const char* name, const cuda::Launch& shape,
                const Params& params) const {
    return launch_bytes(stream, name, shape, &params);
  }
  Status launch_bytes(cudaStream_t stream, const char* name, const cuda::Launch& shape,
                      const void* params) const;
  // Adds a kernel; of load(), and of benchmarks of those that the daemon does not launch yet.
  Status find(const char* name, uint32_t shared_bytes);

 private:
  explicit CudaKernels(CudaDevice& device) : device_(device) {}
  Status load_images();

  CudaDevice& device_;
  std::vector<cudaLibrary_t> libraries_;
  std::map<std::string_view, cudaKernel_t> kernels_;
};

}  // namespace deltad
