#include "backend/cuda/cuda_kernels.h"

#include <fmt/core.h>

#include "backend/cuda/kernel_images.h"
#include "base/check.h"
#include "kernels/cuda/attention_decode.h"
#include "kernels/cuda/attention_prefill.h"
#include "kernels/cuda/embed.h"
#include "kernels/cuda/gather_rows.h"
#include "kernels/cuda/linear_decode.h"
#include "kernels/cuda/linear_prefill.h"
#include "kernels/cuda/linear_prefill_range.h"
#include "kernels/cuda/low_rank_expand.h"
#include "kernels/cuda/low_rank_shrink.h"
#include "kernels/cuda/repack.h"
#include "kernels/cuda/rms_norm.h"
#include "kernels/cuda/rope_append.h"
#include "kernels/cuda/sampler.h"
#include "kernels/cuda/sign_planes.h"
#include "kernels/cuda/silu_gate.h"
#include "kernels/cuda/sum_parts.h"

namespace deltad {
namespace {

constexpr uint32_t kSharedWithoutAsking = 48u << 10;
constexpr int kOverlapsFrom = 9;  // compute capability, of launches that may overlap
constexpr int32_t kHeadDims[] = {64, 96, 128, 192, 256};

}  // namespace

Result<std::unique_ptr<CudaKernels>> CudaKernels::load(CudaDevice& device) {
  std::unique_ptr<CudaKernels> made(new CudaKernels(device));
  RETURN_IF_ERROR(made->load_images());
  for (const char* name :
       {cuda::kRepackBaseKernel, cuda::kRepackSignsKernel, cuda::kSignPlanesKernel,
        cuda::kRmsNormKernel, cuda::kSiluGateKernel, cuda::kRopeAppendKernel, cuda::kEmbedKernel,
        cuda::kGatherRowsKernel, cuda::kLowRankShrinkKernel, cuda::kLowRankExpandKernel,
        cuda::kPrefillRowsKernel, cuda::kWeightRangeKernel, cuda::kSamplerKernel,
        cuda::kSumPartsKernel})
    RETURN_IF_ERROR(made->find(name, 0));
  for (const cuda::LinearKernel& kernel : cuda::kLinearKernels)
    RETURN_IF_ERROR(made->find(kernel.name, cuda::linear_decode_shared(kernel)));
  for (const cuda::LinearPrefillKernel& kernel : made->prefill_kernels())
    RETURN_IF_ERROR(made->find(kernel.name, cuda::linear_prefill_shared(kernel)));
  for (const int32_t dim : kHeadDims) {
    RETURN_IF_ERROR(
        made->find(cuda::attention_decode_kernel(dim), cuda::attention_decode_shared(dim)));
    RETURN_IF_ERROR(
        made->find(cuda::attention_prefill_kernel(dim), cuda::attention_prefill_shared(dim)));
  }
  return made;
}

CudaKernels::~CudaKernels() {
  for (cudaLibrary_t library : libraries_) cudaLibraryUnload(library);
}

std::span<const cuda::LinearPrefillKernel> CudaKernels::prefill_kernels() const {
  if (device_.major() == 9) return cuda::kLinearPrefillHopperKernels;
  return cuda::kLinearPrefillKernels;
}

Status CudaKernels::load_images() {
  for (const KernelImage& image : kernel_images()) {
    cudaLibrary_t library = nullptr;
    const cudaError_t error =
        cudaLibraryLoadData(&library, image.data, nullptr, nullptr, 0, nullptr, nullptr, 0);
    // Kernels for another architecture; find() says if one of them is missed.
    if (error == cudaErrorNoKernelImageForDevice || error == cudaErrorInvalidDeviceFunction)
      continue;
    RETURN_IF_ERROR(
        CUDA_STATUS(device_, error,
                    fmt::format("loading the kernels of {} for {} (compute capability {}.{})",
                                image.name, device_.name(), device_.major(), device_.minor())));
    libraries_.push_back(library);
  }
  return {};
}

Status CudaKernels::find(const char* name, uint32_t shared_bytes) {
  cudaKernel_t kernel = nullptr;
  for (cudaLibrary_t library : libraries_) {
    cudaError_t error = cudaLibraryGetKernel(&kernel, library, name);
    // Which loads it: later that would hold up a step.
    cudaFuncAttributes attributes;
    if (error == cudaSuccess)
      error = cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(kernel));
    if (error == cudaSuccess) break;
    kernel = nullptr;
    // Images are opened late: that one is for other architectures alone may show only here.
    if (error == cudaErrorSymbolNotFound || error == cudaErrorNoKernelImageForDevice ||
        error == cudaErrorInvalidDeviceFunction)
      continue;
    return device_.check(error, "cudaLibraryGetKernel", fmt::format("looking for {}", name));
  }
  if (kernel == nullptr)
    return unimplemented(
        fmt::format("this program has no kernel {} for {} (compute capability {}.{})", name,
                    device_.name(), device_.major(), device_.minor()));
  if (shared_bytes > kSharedWithoutAsking)
    RETURN_IF_ERROR(CUDA_STATUS(device_,
                                cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                                     cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                     static_cast<int>(shared_bytes)),
                                fmt::format("giving {} {} bytes of shared memory on {}", name,
                                            shared_bytes, device_.name())));
  kernels_[name] = kernel;
  return {};
}

Status CudaKernels::launch_bytes(cudaStream_t stream, const char* name, const cuda::Launch& shape,
                                 const void* params) const {
  const auto at = kernels_.find(name);
  CHECK(at != kernels_.end(), name);
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(shape.grid.x, shape.grid.y, shape.grid.z);
  config.blockDim = dim3(shape.block.x, shape.block.y, shape.block.z);
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = stream;
  cudaLaunchAttribute attributes[2] = {};
  config.attrs = attributes;
  // Kernels of a step wait for the one before themselves, after what they can do without it.
  if (stream == device_.compute() && device_.major() >= kOverlapsFrom) {
    cudaLaunchAttribute& overlap = attributes[config.numAttrs++];
    overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlap.val.programmaticStreamSerializationAllowed = 1;
  }
  if (shape.cluster.x * shape.cluster.y * shape.cluster.z > 1) {
    cudaLaunchAttribute& cluster = attributes[config.numAttrs++];
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {shape.cluster.x, shape.cluster.y, shape.cluster.z};
  }
  void* arguments[] = {const_cast<void*>(params)};
  return CUDA_STATUS(
      device_, cudaLaunchKernelExC(&config, reinterpret_cast<const void*>(at->second), arguments),
      fmt::format("launching {} on {} × {} × {} blocks in clusters of {} × {} × {}", name,
                  shape.grid.x, shape.grid.y, shape.grid.z, shape.cluster.x, shape.cluster.y,
                  shape.cluster.z));
}

}  // namespace deltad
