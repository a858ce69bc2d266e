#include "bench/serving/cuda/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <thread>

#include "backend/cuda/cuda_backend.h"
#include "base/clock.h"
#include "bench/synthetic_model.h"

namespace deltad::bench {
namespace {

constexpr int kThreads = 4;
constexpr int64_t kVocab = 128256;
constexpr float kAlpha = 1e-4f;

// Random bytes of which weights take a piece each: 16 GB of random numbers would take longer to
// make than to copy.
class Pool {
 public:
  // Of bf16 values of 2^-6 to 2^-5, or of anything.
  explicit Pool(bool weights, size_t bytes) : words_(bytes / 8) {
    uint64_t state = weights ? 1 : 2;
    for (uint64_t& word : words_) {
      word = next_random(state);
      if (weights) word = (word & 0x807f807f807f807f) | 0x3c803c803c803c80;
    }
  }
  // `bytes` of it, at a place that depends on `piece`.
  const void* at(int64_t piece, size_t bytes) const {
    const size_t places = words_.size() - bytes / 8 - 1;
    return words_.data() + static_cast<size_t>(piece) * 1000003 % places;
  }

 private:
  std::vector<uint64_t> words_;
};

struct Pools {
  Pool weights, bits;
  int64_t piece_bytes;
};

// Rows of a part that are put at once: a multiple of 16.
int64_t rows_of_piece(const Pools& pools, int64_t row_bytes) {
  return std::max<int64_t>(16, pools.piece_bytes / row_bytes / 16 * 16);
}

// work(i) for each of n, on several threads; the first error.
Status in_threads(size_t n, const std::function<Status(size_t)>& work) {
  std::atomic<size_t> next{0};
  std::vector<Status> errors(kThreads);
  std::vector<std::thread> threads;
  for (Status& error : errors)
    threads.emplace_back([&] {
      for (size_t i = next++; i < n && error.ok(); i = next++) error = work(i);
    });
  for (std::thread& thread : threads) thread.join();
  for (const Status& error : errors) RETURN_IF_ERROR(error);
  return {};
}

// first(row) and count(rows) of each piece of a part.
Status in_pieces(int64_t rows, int64_t most, const std::function<Status(int64_t, int64_t)>& put) {
  for (int64_t first = 0; first < rows; first += most)
    RETURN_IF_ERROR(put(first, std::min(most, rows - first)));
  return {};
}

Status put_base(const SyntheticModel& model, const Pools& pools) {
  RETURN_IF_ERROR(model.backend->declare_weights(model.table.specs));
  RETURN_IF_ERROR(in_threads(model.table.specs.size(), [&](size_t id) -> Status {
    const auto weight = static_cast<WeightId>(id);
    const WeightSpec& spec = model.table.specs[id];
    for (int part = 0; part < static_cast<int>(spec.parts.size()); ++part) {
      const int64_t rows = spec.parts[static_cast<size_t>(part)].rows;
      if (spec.kind == WeightKind::kVector) {
        const std::vector<uint16_t> ones(static_cast<size_t>(rows), f32_to_bf16(1));
        RETURN_IF_ERROR(model.backend->put_rows(weight, part, 0, rows, ones.data()));
        continue;
      }
      const int64_t row_bytes = 2 * spec.columns;
      RETURN_IF_ERROR(in_pieces(
          rows, rows_of_piece(pools, row_bytes), [&](int64_t first, int64_t count) -> Status {
            const void* values = pools.weights.at(weight * 4099 + part * 1021 + first,
                                                  static_cast<size_t>(count * row_bytes));
            return model.backend->put_rows(weight, part, first, count,
                                           static_cast<const uint16_t*>(values));
          }));
    }
    return {};
  }));
  return model.backend->finish_weights();
}

Result<VariantRef> make_variant(const SyntheticModel& model, const Pools& pools, int number) {
  VariantContent content;
  for (size_t id = 0; id < model.table.specs.size(); ++id)
    if (is_block_matrix(model.table.specs[id].parts[0].name))
      content.signs.push_back({static_cast<WeightId>(id), 1});
  ASSIGN_OR_RETURN(std::unique_ptr<VariantWeights> made, model.backend->new_variant(content));
  RETURN_IF_ERROR(in_threads(content.signs.size(), [&](size_t i) -> Status {
    const WeightId weight = content.signs[i].weight;
    const WeightSpec& spec = model.table.specs[static_cast<size_t>(weight)];
    for (int part = 0; part < static_cast<int>(spec.parts.size()); ++part) {
      const int64_t rows = spec.parts[static_cast<size_t>(part)].rows;
      const std::vector<float> alpha(static_cast<size_t>(rows), kAlpha);
      RETURN_IF_ERROR(made->put_alpha(weight, part, 0, alpha.data()));
      const int64_t row_bytes = (spec.columns + 7) / 8;
      RETURN_IF_ERROR(in_pieces(
          rows, rows_of_piece(pools, row_bytes), [&](int64_t first, int64_t count) -> Status {
            const void* bits = pools.bits.at(number * 65537 + weight * 4099 + part * 1021 + first,
                                             static_cast<size_t>(count * row_bytes));
            return made->put_sign_rows(weight, part, 0, first, count,
                                       static_cast<const uint8_t*>(bits));
          }));
    }
    return {};
  }));
  RETURN_IF_ERROR(made->finish());
  auto variant = std::make_shared<Variant>();
  variant->name = fmt::format("v{}", number);
  variant->digest = fmt::format("{:032x}", number + 1);
  variant->vocab = model.config.vocab;
  variant->bytes = made->bytes();
  variant->weights = std::move(made);
  return VariantRef(std::move(variant));
}

ModelConfig small_config() {
  ModelConfig config = synthetic_8b(2, 256);
  config.hidden = 64;
  config.intermediate = 128;
  config.heads = 2;
  config.kv_heads = 1;
  config.head_dim = 32;
  return config;
}

}  // namespace

Result<std::unique_ptr<SyntheticModel>> make_synthetic_model(bool small, int variants) {
  auto model = std::make_unique<SyntheticModel>();
  model->config = small ? small_config() : synthetic_8b(32, kVocab);
  model->table = make_weight_table(model->config);
  ASSIGN_OR_RETURN(model->backend, make_cuda_backend({}));
  const size_t bytes = small ? size_t{1} << 20 : size_t{128} << 20;
  const Pools pools{Pool(true, bytes), Pool(false, bytes), small ? 1 << 14 : 4 << 20};
  TimePoint start = Clock::real().now();
  RETURN_IF_ERROR(put_base(*model, pools));
  model->base_seconds = seconds(Clock::real().now() - start);
  start = Clock::real().now();
  for (int i = 0; i < variants; ++i) {
    ASSIGN_OR_RETURN(VariantRef variant, make_variant(*model, pools, i));
    model->variants.push_back(std::move(variant));
  }
  model->variant_seconds = seconds(Clock::real().now() - start) / std::max(1, variants);
  return model;
}

}  // namespace deltad::bench
