#include "parallel/parallel_transformer.h"

#include <fmt/core.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "parallel/parallel_kv_swap.h"
#include "parallel/parallel_weights.h"

namespace deltad {

ParallelTransformer::ParallelTransformer(const ModelConfig& config, ParallelBackend& backend,
                                         Duration patience)
    : config_(config),
      backend_(backend),
      patience_(patience),
      threads_(backend.ranks(), [this](int rank) { run_rank(rank); }) {}

Result<std::unique_ptr<ParallelTransformer>> ParallelTransformer::make(const ModelConfig& config,
                                                                       ParallelBackend& backend,
                                                                       Duration patience,
                                                                       int64_t max_rows,
                                                                       int64_t max_positions) {
  std::unique_ptr<ParallelTransformer> made(new ParallelTransformer(config, backend, patience));
  for (int r = 0; r < backend.ranks(); ++r) {
    made->transformers_.emplace_back();
    ASSIGN_OR_RETURN(
        made->transformers_.back(),
        Transformer::make(backend.shards().config(r), backend.table(r), backend.backend(r),
                          max_rows, max_positions, &backend.communicator(r)));
  }
  made->workspace_bytes_ = made->measure_workspace();
  return made;
}

int64_t ParallelTransformer::kv_block_bytes(int32_t block_tokens) const {
  int64_t bytes = 0;
  for (int r = 0; r < backend_.ranks(); ++r)
    bytes += backend_.backend(r).ops().kv_block_bytes(
        transformers_[static_cast<size_t>(r)]->attention_shape(), block_tokens);
  return bytes;
}

Status ParallelTransformer::allocate_kv(int32_t blocks, int32_t block_tokens) {
  for (int r = 0; r < backend_.ranks(); ++r) {
    Backend& backend = backend_.backend(r);
    const KvGeometry geometry{
        config_.layers, blocks, block_tokens,
        backend.ops().kv_block_bytes(transformers_[static_cast<size_t>(r)]->attention_shape(),
                                     block_tokens)};
    ASSIGN_OR_RETURN(Buffer memory, backend.allocate(static_cast<size_t>(geometry.bytes())));
    use_small_pages(memory);
    kv_.push_back({memory.data(), blocks, block_tokens, geometry.block_bytes});
    caches_.push_back(std::move(memory));
  }
  return {};
}

Result<std::unique_ptr<KvSwap>> ParallelTransformer::new_kv_swap(int32_t host_blocks) const {
  std::vector<std::unique_ptr<KvSwap>> ranks;
  for (int r = 0; r < backend_.ranks(); ++r) {
    auto made =
        backend_.backend(r).new_kv_swap(kv_[static_cast<size_t>(r)], config_.layers, host_blocks);
    if (!made.ok()) return made.status().in(fmt::format("rank {} of {}", r, backend_.ranks()));
    if (*made == nullptr) return std::unique_ptr<KvSwap>();
    ranks.push_back(std::move(*made));
  }
  return std::unique_ptr<KvSwap>(std::make_unique<ParallelKvSwap>(std::move(ranks)));
}

size_t ParallelTransformer::measure_workspace() const {
  // Logits are put together on the host, which counts where the ranks are there, too.
  const bool on_host = !caches_.empty() && caches_[0].device() == DeviceKind::kCpu;
  size_t bytes = on_host ? memory_.bytes() : 0;
  for (const auto& transformer : transformers_) bytes += transformer->workspace_bytes();
  for (int r = 0; r < backend_.ranks(); ++r)
    bytes += backend_.backend(r).workspace_bytes() + backend_.communicator(r).workspace_bytes();
  return bytes;
}

void ParallelTransformer::set_step(const Batch& batch,
                                   std::span<const VariantWeights* const> slots) {
  step_.batch = batch;
  step_.blocks.clear();
  for (const SequenceSpan& span : batch.spans) {
    const int64_t end = span.first_position + (span.end_row - span.first_row);
    const int64_t tokens = kv_[0].block_tokens;
    step_.blocks.insert(step_.blocks.end(), span.blocks, span.blocks + (end + tokens - 1) / tokens);
  }
  const int32_t* blocks = step_.blocks.data();
  for (SequenceSpan& span : step_.batch.spans) {
    const int64_t end = span.first_position + (span.end_row - span.first_row);
    span.blocks = blocks;
    blocks += (end + kv_[0].block_tokens - 1) / kv_[0].block_tokens;
  }
  step_.slots.assign(static_cast<size_t>(backend_.ranks()), {});
  for (const VariantWeights* variant : slots)
    for (int r = 0; r < backend_.ranks(); ++r)
      step_.slots[static_cast<size_t>(r)].push_back(
          variant == nullptr ? nullptr : &static_cast<const ParallelWeights*>(variant)->rank(r));
  set_vocab(slots);
}

// How many columns count in each row of logits.
void ParallelTransformer::set_vocab(std::span<const VariantWeights* const> slots) {
  const Batch& batch = step_.batch;
  const WeightId head = backend_.shards().table().head;
  logits_ = {};
  size_t group = 0;
  for (const int32_t row : batch.logit_rows) {
    while (row >= batch.groups[group].end_row) ++group;
    const int32_t slot = batch.groups[group].slot;
    const int64_t own = slot == kBaseSlot ? 0 : slots[static_cast<size_t>(slot)]->dense_rows(head);
    logits_.vocab.push_back(own > 0 ? own : config_.vocab);
  }
}

// Room for the logits of all ranks, as wide as the widest variant of the step needs.
Status ParallelTransformer::make_logits() {
  const auto rows = static_cast<int64_t>(logits_.vocab.size());
  if (rows == 0) return {};
  const int64_t widest = *std::max_element(logits_.vocab.begin(), logits_.vocab.end());
  const auto bytes = static_cast<size_t>(rows * widest) * sizeof(float);
  if (bytes > memory_.bytes()) {
    ASSIGN_OR_RETURN(memory_, Buffer::cpu(bytes));
  }
  logits_.values = matrix_view(memory_.data(), DType::kF32, rows, widest, widest);
  return {};
}

Result<Logits> ParallelTransformer::forward(const Batch& batch,
                                            std::span<const VariantWeights* const> slots) {
  RETURN_IF_ERROR(backend_.health());
  set_step(batch, slots);
  step_.sampled = false;
  RETURN_IF_ERROR(make_logits());
  RETURN_IF_ERROR(run());
  return logits_;
}

Result<std::vector<SampleOutcome>> ParallelTransformer::forward_sampled(
    const Batch& batch, std::span<const VariantWeights* const> slots,
    std::span<const SampleRequest> wanted, const std::function<void()>& meanwhile) {
  RETURN_IF_ERROR(backend_.health());
  CHECK(wanted.size() == batch.logit_rows.size(), "a request for each row of logits");
  set_step(batch, slots);
  step_.sampled = true;
  sampling_ = {wanted, meanwhile, logits_.vocab, {}};
  RETURN_IF_ERROR(run());
  return std::move(sampling_.outcomes);
}

Status ParallelTransformer::run() {
  CHECK(kv_.size() == transformers_.size(), "the ranks have no KV cache");
  threads_.run();
  RETURN_IF_ERROR(backend_.health());
  const int missing = threads_.await(Clock::real().now() + patience_);
  if (missing >= 0)
    backend_.communicator(missing).fail(unavailable(
        fmt::format("it has not ended its step {:g} s after the first one", seconds(patience_))));
  RETURN_IF_ERROR(backend_.health());
  workspace_bytes_ = measure_workspace();
  return {};
}

void ParallelTransformer::run_rank(int rank) {
  Status status;
  try {
    status = try_rank(rank);
  } catch (const std::exception& error) {
    status = internal_error(error.what());
  }
  if (!status.ok()) backend_.communicator(rank).fail(status);
}

Status ParallelTransformer::try_rank(int rank) {
  const auto r = static_cast<size_t>(rank);
  const ShardMap& map = backend_.shards();
  Batch mine = step_.batch;
  for (int32_t& id : mine.ids) id = map.local_token(rank, id);
  if (step_.sampled) {
    Sampling of_others;
    Sampling& sampling = rank == 0 ? sampling_ : of_others;
    ASSIGN_OR_RETURN(sampling.outcomes, transformers_[r]->forward_sampled(
                                            mine, kv_[r], step_.slots[r], sampling.wanted,
                                            sampling.meanwhile, sampling.vocab));
    return {};
  }
  ASSIGN_OR_RETURN(const Logits part, transformers_[r]->forward(mine, kv_[r], step_.slots[r]));
  for (size_t i = 0; i < part.vocab.size(); ++i)
    std::copy_n(part.values.row<float>(static_cast<int64_t>(i)), part.vocab[i],
                logits_.values.row<float>(static_cast<int64_t>(i)) + map.share(rank).vocab.begin);
  return {};
}

}  // namespace deltad
