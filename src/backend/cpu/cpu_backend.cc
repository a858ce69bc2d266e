// CpuBackend: weights, worker team and ops on this machine's CPU. Owned by main; see
// backend/backend.h for who may call what.
#include <fmt/core.h>

#include <cstring>
#include <memory>
#include <utility>

#include "backend/backend.h"
#include "backend/cpu/cpu_ops.h"
#include "base/worker_team.h"

namespace deltad {
namespace {

constexpr int kMaxThreads = 1024;

class CpuBackend final : public Backend {
 public:
  CpuBackend(Isa isa, int threads, bool pin)
      : isa_(isa), team_(threads, pin), ops_(isa, team_, weights_) {}

  Status declare_weights(const std::vector<WeightSpec>& specs) override {
    return weights_.declare(specs);
  }
  Status put_rows(WeightId weight, int part, int64_t first, int64_t count,
                  const uint16_t* values) override {
    return weights_.put_rows(weight, part, first, count, values);
  }
  Status finish_weights() override { return {}; }
  Result<std::unique_ptr<VariantWeights>> new_variant(const VariantContent& content) override {
    ASSIGN_OR_RETURN(std::unique_ptr<CpuVariantWeights> made,
                     CpuVariantWeights::make(weights_, content));
    return std::unique_ptr<VariantWeights>(std::move(made));
  }
  Result<size_t> variant_bytes(const VariantContent& content) const override {
    return CpuVariantWeights::bytes_of(weights_, content);
  }
  Result<Buffer> allocate(size_t bytes) override { return Buffer::cpu(bytes); }
  Status upload(void* to, const void* from, size_t bytes) override {
    std::memcpy(to, from, bytes);
    return {};
  }
  std::optional<int64_t> device_free_bytes() const override { return std::nullopt; }
  Status health() const override { return {}; }
  Ops& ops() override { return ops_; }
  size_t weight_bytes() const override { return weights_.bytes(); }
  std::string description() const override {
    return fmt::format("CPU, {}, {} thread{}", isa_name(isa_), team_.size(),
                       team_.size() == 1 ? "" : "s");
  }

 private:
  const Isa isa_;
  WorkerTeam team_;
  CpuWeights weights_;
  CpuOps ops_;
};

}  // namespace

Result<std::unique_ptr<Backend>> make_cpu_backend(const CpuBackendOptions& options) {
  ASSIGN_OR_RETURN(const Isa isa, choose_isa(options.isa));
  if (options.threads < 0 || options.threads > kMaxThreads)
    return invalid_argument(
        fmt::format("threads is {}, expected 0 (one a core) to {}", options.threads, kMaxThreads));
  const int threads = options.threads > 0 ? options.threads : WorkerTeam::cores();
  return std::unique_ptr<Backend>(std::make_unique<CpuBackend>(isa, threads, options.pin));
}

}  // namespace deltad
