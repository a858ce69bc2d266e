// CudaBackend: weights, streams and ops on one GPU. Owned by main; see backend/backend.h for who
// may call what.
#include "backend/cuda/cuda_backend.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "backend/cuda/communicator_choice.h"
#include "backend/cuda/cuda_kv_swap.h"
#include "backend/cuda/cuda_ops.h"
#include "base/worker_team.h"

namespace deltad {
namespace {

constexpr int kMostHostThreads = 4;  // rows of logits are sampled at once

// A step that nobody waited for, of another rank too, or a copy that failed half-way, may still use
// it.
void free_device(void* data, size_t) {
  CudaDevice::wait_for_all();
  cudaFree(data);
}

class CudaBackend final : public Backend {
 public:
  CudaBackend(std::unique_ptr<CudaDevice> device, std::unique_ptr<CudaKernels> kernels,
              std::unique_ptr<LoadRing> ring, std::unique_ptr<HostTier> host, int host_threads)
      : device_(std::move(device)),
        kernels_(std::move(kernels)),
        ring_(std::move(ring)),
        host_(std::move(host)),
        loading_{*device_, *kernels_, *ring_, *host_},
        weights_(loading_),
        ops_(*device_, *kernels_, weights_, host_threads) {}
  // A load that was given up may be under way; no step is, for whoever had its Buffers is gone.
  ~CudaBackend() override {
    (void)device_->use();
    cudaStreamSynchronize(device_->load());
  }

  Status declare_weights(const std::vector<WeightSpec>& specs) override {
    RETURN_IF_ERROR(weights_.declare(specs));
    return ops_.allocate_slots();
  }
  Status put_rows(WeightId weight, int part, int64_t first, int64_t count,
                  const uint16_t* values) override {
    return weights_.put_rows(weight, part, first, count, values);
  }
  Status finish_weights() override { return weights_.finish(); }
  Result<std::unique_ptr<VariantWeights>> new_variant(const VariantContent& content) override {
    ASSIGN_OR_RETURN(std::unique_ptr<CudaVariantWeights> made,
                     CudaVariantWeights::make(loading_, weights_, content));
    return std::unique_ptr<VariantWeights>(std::move(made));
  }
  Result<size_t> reserve_host(size_t bytes) override { return host_->reserve(bytes); }
  Result<std::unique_ptr<VariantWeights>> restore(const VariantImage& image,
                                                  const std::atomic<bool>& cancelled) override {
    ASSIGN_OR_RETURN(
        std::unique_ptr<CudaVariantWeights> made,
        CudaVariantWeights::restore(loading_, weights_, static_cast<const CudaVariantImage&>(image),
                                    cancelled));
    return std::unique_ptr<VariantWeights>(std::move(made));
  }
  Result<size_t> variant_bytes(const VariantContent& content) const override {
    ASSIGN_OR_RETURN(const CudaVariantPlan plan, plan_cuda_variant(weights_, content));
    return plan.bytes;
  }

  Result<Buffer> allocate(size_t bytes) override {
    if (bytes == 0) return Buffer();
    RETURN_IF_ERROR(device_->use());
    void* data = nullptr;
    RETURN_IF_ERROR(device_->allocate(&data, bytes, "keys, values and activations"));
    Buffer made(data, bytes, DeviceKind::kCuda, free_device);
    RETURN_IF_ERROR(CUDA_STATUS(*device_, cudaMemsetAsync(data, 0, bytes, device_->load()),
                                fmt::format("clearing {} bytes of the GPU's memory", bytes)));
    RETURN_IF_ERROR(ring_->wait());
    return made;
  }
  Status upload(void* to, const void* from, size_t bytes) override {
    RETURN_IF_ERROR(ring_->copy(to, from, bytes));
    return ring_->wait();
  }
  Result<std::unique_ptr<KvSwap>> new_kv_swap(const KvView& kv, int64_t layers,
                                              int32_t host_blocks) override {
    ASSIGN_OR_RETURN(std::unique_ptr<CudaKvSwap> made,
                     CudaKvSwap::make(*device_, kv, layers, host_blocks));
    return std::unique_ptr<KvSwap>(std::move(made));
  }
  std::optional<int64_t> device_free_bytes() const override { return device_->free_bytes(); }
  Status health() const override { return device_->health(); }
  Ops& ops() override { return ops_; }
  size_t weight_bytes() const override { return weights_.bytes(); }
  size_t workspace_bytes() const override { return ring_->device_bytes() + ops_.device_bytes(); }
  std::string description() const override {
    return fmt::format("CUDA, {}, compute capability {}.{}", device_->name(), device_->major(),
                       device_->minor());
  }

 private:
  // In the order in which they need each other.
  const std::unique_ptr<CudaDevice> device_;
  const std::unique_ptr<CudaKernels> kernels_;
  const std::unique_ptr<LoadRing> ring_;
  const std::unique_ptr<HostTier> host_;
  const CudaLoading loading_;
  CudaWeights weights_;
  CudaOps ops_;
};

// pool: the process's, where ranks share the work.
Result<std::unique_ptr<Backend>> make_backend(const CudaBackendOptions& options,
                                              std::shared_ptr<HostPool> pool) {
  ASSIGN_OR_RETURN(std::unique_ptr<CudaDevice> device,
                   CudaDevice::open(options.device, options.patience));
  ASSIGN_OR_RETURN(std::unique_ptr<CudaKernels> kernels, CudaKernels::load(*device));
  ASSIGN_OR_RETURN(std::unique_ptr<LoadRing> ring, LoadRing::make(*device));
  ASSIGN_OR_RETURN(std::unique_ptr<HostTier> host, HostTier::make(*device, std::move(pool)));
  const int threads = options.host_threads > 0 ? options.host_threads
                                               : std::min(kMostHostThreads, WorkerTeam::cores());
  return std::unique_ptr<Backend>(std::make_unique<CudaBackend>(
      std::move(device), std::move(kernels), std::move(ring), std::move(host), threads));
}

}  // namespace

Result<std::unique_ptr<Backend>> make_cuda_backend(const CudaBackendOptions& options) {
  return make_backend(options, std::make_shared<HostPool>());
}

Result<CudaRanks> make_cuda_ranks(int ranks, Duration bound, CommunicatorChoice choice,
                                  Duration least_connecting) {
  CudaRanks made;
  std::vector<CudaOps*> ops;
  const auto pool = std::make_shared<HostPool>();
  for (int rank = 0; rank < ranks; ++rank) {
    // Sampling is the first one's.
    Result<std::unique_ptr<Backend>> backend = make_backend({rank, rank == 0 ? 0 : 1, bound}, pool);
    if (!backend.ok()) return backend.status().in(fmt::format("rank {} of {}", rank, ranks));
    made.backends.push_back(std::move(*backend));
    ops.push_back(&static_cast<CudaOps&>(made.backends.back()->ops()));
  }
  ASSIGN_OR_RETURN(made.communicators,
                   make_chosen_communicators(choice, ops, bound, least_connecting));
  return made;
}

std::string describe_cuda() {
  const std::string version = "CUDA " + cuda_version(CUDART_VERSION);
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0)
    return fmt::format("{} (no GPU: {})", version,
                       error == cudaSuccess ? "none found" : cuda_reason(error));
  cudaDeviceProp properties{};
  if (cudaGetDeviceProperties(&properties, 0) != cudaSuccess)
    return fmt::format("{} (the GPU does not answer)", version);
  return fmt::format("{} ({}{})", version, properties.name,
                     count > 1 ? fmt::format(" and {} more", count - 1) : "");
}

}  // namespace deltad
