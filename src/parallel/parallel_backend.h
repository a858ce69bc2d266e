// ParallelBackend: the weights of tensor parallelism: a backend a rank, each with its share of the
// base and of every variant (parallel/shard_map). Loaders see one store; what they put is cut up
// and handed to the ranks through host memory. Owned by main; the ranks' steps are run by
// ParallelTransformer.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/communicator.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "model/config.h"
#include "parallel/rank_rows.h"
#include "parallel/shard_map.h"

namespace deltad {

struct ParallelOptions {
  int ranks = 1;
  // A rank that keeps the others waiting for longer in a step has failed, and so have all.
  Duration patience = std::chrono::seconds(60);
};

class ParallelBackend final : public WeightStore {
 public:
  // One backend and one communicator a rank, in their order. kInvalidArgument if the model cannot
  // be shared by so many.
  static Result<std::unique_ptr<ParallelBackend>> make(
      const ModelConfig& config, std::vector<std::unique_ptr<Backend>> backends,
      std::vector<std::unique_ptr<Communicator>> communicators);

  // specs: of the whole model.
  Status declare_weights(const std::vector<WeightSpec>& specs) override;
  Status put_rows(WeightId weight, int part, int64_t first, int64_t count,
                  const uint16_t* values) override;
  Status finish_weights() override;
  Result<std::unique_ptr<VariantWeights>> new_variant(const VariantContent& content) override;
  Result<size_t> variant_bytes(const VariantContent& content) const override;
  Result<size_t> reserve_host(size_t bytes) override;
  Result<std::unique_ptr<VariantWeights>> restore(const VariantImage& image,
                                                  const std::atomic<bool>& cancelled) override;
  std::optional<int64_t> device_free_bytes() const override;
  size_t weight_bytes() const override;
  std::string description() const override;
  int ranks() const override { return map_.ranks(); }

  const ShardMap& shards() const { return map_; }
  // The weights as this rank knows them.
  const WeightTable& table(int rank) const { return tables_[static_cast<size_t>(rank)]; }
  Backend& backend(int rank) const { return *backends_[static_cast<size_t>(rank)]; }
  Communicator& communicator(int rank) const { return *communicators_[static_cast<size_t>(rank)]; }
  // Not ok: a rank or its device has failed, for good, and so will every step. Any thread.
  Status health() const;

  // A variant is gone. After a failure a rank may still be at work on it, out of reach: then its
  // weights are kept as long as the backends.
  void retire(std::vector<std::unique_ptr<VariantWeights>> weights);

 private:
  ParallelBackend(ShardMap map, std::vector<std::unique_ptr<Backend>> backends,
                  std::vector<std::unique_ptr<Communicator>> communicators);

  const ShardMap map_;
  const std::vector<std::unique_ptr<Backend>> backends_;  // index: rank, as of all the others
  const std::vector<std::unique_ptr<Communicator>> communicators_;
  std::vector<WeightTable> tables_;
  std::vector<RankRows> rows_;
  Mutex mutex_;
  std::vector<std::unique_ptr<VariantWeights>> retired_ GUARDED_BY(mutex_);
};

// Ranks as threads on this machine's processors, among which its kernel threads are divided. These
// are not pinned: ranks on a CPU are for tests.
Result<std::unique_ptr<ParallelBackend>> make_parallel_cpu_backend(const ModelConfig& config,
                                                                   const CpuBackendOptions& cpu,
                                                                   const ParallelOptions& options);

}  // namespace deltad
