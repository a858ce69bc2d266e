#include "parallel/parallel_backend.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/log.h"
#include "base/worker_team.h"
#include "parallel/each_rank.h"
#include "parallel/parallel_weights.h"
#include "parallel/thread_communicator.h"

namespace deltad {

Result<std::unique_ptr<ParallelBackend>> ParallelBackend::make(
    const ModelConfig& config, std::vector<std::unique_ptr<Backend>> backends,
    std::vector<std::unique_ptr<Communicator>> communicators) {
  CHECK(backends.size() == communicators.size(), "one communicator a rank");
  ASSIGN_OR_RETURN(ShardMap map, ShardMap::make(config, static_cast<int>(backends.size())));
  return std::unique_ptr<ParallelBackend>(
      new ParallelBackend(std::move(map), std::move(backends), std::move(communicators)));
}

ParallelBackend::ParallelBackend(ShardMap map, std::vector<std::unique_ptr<Backend>> backends,
                                 std::vector<std::unique_ptr<Communicator>> communicators)
    : map_(std::move(map)),
      backends_(std::move(backends)),
      communicators_(std::move(communicators)),
      rows_(backends_.size()) {
  for (int r = 0; r < ranks(); ++r) tables_.push_back(make_weight_table(map_.config(r)));
}

Status ParallelBackend::declare_weights(const std::vector<WeightSpec>& specs) {
  CHECK(specs.size() == map_.table().specs.size(), "the weights of the model that is shared");
  for (int r = 0; r < ranks(); ++r)
    RETURN_IF_ERROR(
        backend(r).declare_weights(table(r).specs).in(fmt::format("rank {} of {}", r, ranks())));
  return {};
}

Status ParallelBackend::put_rows(WeightId weight, int part, int64_t first, int64_t count,
                                 const uint16_t* values) {
  RETURN_IF_ERROR(map_.check_place(weight, part));
  for (int r = 0; r < ranks(); ++r)
    RETURN_IF_ERROR(rows_[static_cast<size_t>(r)].put(
        weight * 4 + part, map_.shard(r, weight, part), map_.spec(weight).columns, 16, first, count,
        reinterpret_cast<const uint8_t*>(values), [&](int64_t at, int64_t n, const uint8_t* own) {
          return backend(r).put_rows(weight, part, at, n, reinterpret_cast<const uint16_t*>(own));
        }));
  return {};
}

Status ParallelBackend::finish_weights() {
  for (int r = 0; r < ranks(); ++r)
    RETURN_IF_ERROR(backend(r).finish_weights().in(fmt::format("rank {} of {}", r, ranks())));
  return {};
}

Result<std::unique_ptr<VariantWeights>> ParallelBackend::new_variant(
    const VariantContent& content) {
  std::vector<std::unique_ptr<VariantWeights>> weights;
  for (int r = 0; r < ranks(); ++r) {
    ASSIGN_OR_RETURN(const VariantContent mine, content_of_rank(map_, r, content));
    weights.emplace_back();
    ASSIGN_OR_RETURN(weights.back(), backend(r).new_variant(mine));
  }
  return std::unique_ptr<VariantWeights>(
      std::make_unique<ParallelWeights>(*this, content, std::move(weights)));
}

Result<size_t> ParallelBackend::variant_bytes(const VariantContent& content) const {
  size_t all = 0;
  for (int r = 0; r < ranks(); ++r) {
    ASSIGN_OR_RETURN(const VariantContent mine, content_of_rank(map_, r, content));
    ASSIGN_OR_RETURN(const size_t bytes, backend(r).variant_bytes(mine));
    all += bytes;
  }
  return all;
}

Result<size_t> ParallelBackend::reserve_host(size_t bytes) {
  std::vector<size_t> taken(backends_.size());
  const Status failed = each_rank(ranks(), [&](int r) -> Status {
    ASSIGN_OR_RETURN(taken[static_cast<size_t>(r)], backend(r).reserve_host(bytes / taken.size()));
    return {};
  });
  // What some have got serves all: they share it.
  const size_t all = std::accumulate(taken.begin(), taken.end(), size_t{0});
  if (all == 0) RETURN_IF_ERROR(failed);
  if (!failed.ok()) log_warning("host memory for variants: {}", failed.message());
  return all;
}

Result<std::unique_ptr<VariantWeights>> ParallelBackend::restore(
    const VariantImage& image, const std::atomic<bool>& cancelled) {
  const auto& shares = static_cast<const ParallelImage&>(image);
  std::vector<std::unique_ptr<VariantWeights>> weights(backends_.size());
  RETURN_IF_ERROR(each_rank(ranks(), [&](int r) -> Status {
    const auto rank = static_cast<size_t>(r);
    ASSIGN_OR_RETURN(weights[rank], backend(r).restore(*shares.ranks[rank], cancelled));
    return {};
  }));
  return std::unique_ptr<VariantWeights>(
      std::make_unique<ParallelWeights>(*this, shares.content, std::move(weights)));
}

// Shares are about equal, so the fullest device decides.
std::optional<int64_t> ParallelBackend::device_free_bytes() const {
  std::optional<int64_t> least;
  for (const auto& backend : backends_) {
    const std::optional<int64_t> free = backend->device_free_bytes();
    if (!free) return std::nullopt;
    least = std::min(least.value_or(*free), *free);
  }
  return *least * ranks();
}

size_t ParallelBackend::weight_bytes() const {
  size_t bytes = 0;
  for (const auto& backend : backends_) bytes += backend->weight_bytes();
  return bytes;
}

std::string ParallelBackend::description() const {
  const std::string sums = communicators_[0]->description();
  return fmt::format("{} ranks: {}{}{}", ranks(), backends_[0]->description(),
                     sums.empty() ? "" : "; ", sums);
}

Status ParallelBackend::health() const {
  for (int r = 0; r < ranks(); ++r)
    RETURN_IF_ERROR(backend(r).health().in(fmt::format("rank {} of {}", r, ranks())));
  return communicators_[0]->status();
}

void ParallelBackend::retire(std::vector<std::unique_ptr<VariantWeights>> weights) {
  if (health().ok()) return;
  MutexLock lock(mutex_);
  for (auto& of_rank : weights) retired_.push_back(std::move(of_rank));
}

Result<std::unique_ptr<ParallelBackend>> make_parallel_cpu_backend(const ModelConfig& config,
                                                                   const CpuBackendOptions& cpu,
                                                                   const ParallelOptions& options) {
  RETURN_IF_ERROR(ShardMap::make(config, options.ranks).status());
  const int threads = cpu.threads > 0 ? cpu.threads : WorkerTeam::cores();
  std::vector<std::unique_ptr<Backend>> backends;
  for (int r = 0; r < options.ranks; ++r) {
    const Share share = share_of(threads, 1, r, options.ranks);
    CpuBackendOptions mine = cpu;
    mine.threads = std::max(1, static_cast<int>(share.end - share.begin));
    mine.pin = false;
    backends.emplace_back();
    ASSIGN_OR_RETURN(backends.back(), make_cpu_backend(mine));
  }
  return ParallelBackend::make(config, std::move(backends),
                               make_thread_communicators(options.ranks, options.patience));
}

}  // namespace deltad
