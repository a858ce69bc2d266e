#include "calibrate/layer_walk.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "delta/low_rank_part.h"
#include "delta/work_list.h"
#include "tensor/float16.h"

namespace deltad {
namespace {

constexpr int64_t kBatchRows = LayerWalk::kMaxTokens;
constexpr int32_t kBlockTokens = 16;
// Twice what the rows fill: each sequence may leave most of a block empty.
constexpr int64_t kBatchBlocks = 2 * kBatchRows / kBlockTokens;
constexpr int64_t kRowUnit = 16;  // backends take rows from multiples of it on
constexpr const char* kEmbeddings = "model.embed_tokens.weight";

int64_t blocks_for(int64_t tokens) { return (tokens + kBlockTokens - 1) / kBlockTokens; }

Status not_finite(const std::string& path, const std::string& name, int64_t row) {
  return invalid_argument(
      fmt::format("{}: tensor '{}': row {} has a value that is not a finite number (or too large)",
                  path, name, row));
}

// The first of count rows of bf16 values with one that is not finite; −1: none.
int64_t bad_row(const uint16_t* values, int64_t count, int64_t columns) {
  for (int64_t r = 0; r < count; ++r) {
    bool bad = false;
    for (int64_t c = 0; c < columns; ++c) bad |= (values[r * columns + c] & 0x7f80u) == 0x7f80u;
    if (bad) return r;
  }
  return -1;
}

// Calls visit(first, count) for blocks of rows that begin at multiples of kRowUnit.
template <typename Visit>
Status for_row_blocks(int64_t rows, int64_t columns, Visit visit) {
  const int64_t step = std::max(kRowUnit, block_rows(Shape{rows, columns}) / kRowUnit * kRowUnit);
  for (int64_t first = 0; first < rows; first += step)
    RETURN_IF_ERROR(visit(first, std::min(step, rows - first)));
  return {};
}

}  // namespace

LayerInput input_of(const std::string& weight) {
  const auto has = [&](const char* kind) { return weight.find(kind) != std::string::npos; };
  if (has(".o_proj.")) return LayerInput::kAttentionOut;
  if (has(".gate_proj.") || has(".up_proj.")) return LayerInput::kMlp;
  if (has(".down_proj.")) return LayerInput::kDown;
  return LayerInput::kAttention;
}

Result<std::unique_ptr<LayerWalk>> LayerWalk::make(const Checkpoint& base, const Tune& tune,
                                                   int threads) {
  std::unique_ptr<LayerWalk> walk(new LayerWalk(base, tune, threads));
  walk->config_ = base.config();
  walk->config_.layers = 1;
  walk->table_ = make_layer_table(base.config(), 0);
  CpuBackendOptions options;
  options.threads = threads;
  options.pin = false;  // the caller's other work would inherit its one core
  ASSIGN_OR_RETURN(walk->backend_, make_cpu_backend(options));
  RETURN_IF_ERROR(walk->backend_->declare_weights(walk->table_.specs));
  ASSIGN_OR_RETURN(walk->transformer_, Transformer::make(walk->config_, walk->table_,
                                                         *walk->backend_, kBatchRows, kMaxTokens));
  walk->stride_ = walk->transformer_->residual_stride();
  const int64_t blocks = kBatchBlocks;
  const int64_t bytes =
      walk->backend_->ops().kv_block_bytes(walk->transformer_->attention_shape(), kBlockTokens);
  ASSIGN_OR_RETURN(walk->cache_, walk->backend_->allocate(static_cast<size_t>(blocks * bytes)));
  walk->kv_ = {walk->cache_.data(), static_cast<int32_t>(blocks), kBlockTokens, bytes};
  for (int64_t i = 0; i < blocks; ++i) walk->blocks_.push_back(static_cast<int32_t>(i));
  return walk;
}

Result<Activations> LayerWalk::embed(WalkedModel model,
                                     const std::vector<TokenSequence>& sequences) const {
  Activations out;
  out.sequences = &sequences;
  std::map<int32_t, std::vector<uint16_t>> rows;
  for (const TokenSequence& sequence : sequences) {
    CHECK(static_cast<int64_t>(sequence.size()) <= kMaxTokens, "sequence too long");
    out.tokens += static_cast<int64_t>(sequence.size());
    for (const int32_t id : sequence) rows[id];
  }
  const int64_t hidden = config_.hidden;
  const bool tuned = model != WalkedModel::kBase && tune_.tensors().count(kEmbeddings) != 0;
  std::vector<float> values(static_cast<size_t>(hidden));
  for (auto& [id, row] : rows) {
    row.resize(static_cast<size_t>(hidden));
    if (!tuned) {
      RETURN_IF_ERROR(base_.read_rows_bf16(kEmbeddings, id, 1, row.data()));
    } else {
      RETURN_IF_ERROR(tune_.value_rows(kEmbeddings, id, 1, values.data()));
      std::transform(values.begin(), values.end(), row.begin(),
                     [](float v) { return f32_to_bf16(v); });
    }
    if (bad_row(row.data(), 1, hidden) >= 0)
      return not_finite(tuned ? tune_.path() : base_.path(), kEmbeddings, id);
  }
  ASSIGN_OR_RETURN(out.residual,
                   Buffer::cpu(static_cast<size_t>(out.tokens * stride_) * sizeof(float)));
  float* at = out.residual.as<float>();
  for (const TokenSequence& sequence : sequences)
    for (const int32_t id : sequence) {
      const std::vector<uint16_t>& row = rows.at(id);
      for (int64_t c = 0; c < hidden; ++c) at[c] = bf16_to_f32(row[static_cast<size_t>(c)]);
      at += stride_;
    }
  return out;
}

Status LayerWalk::load_base_rows() {
  struct Piece {
    WeightId weight;
    int part;
    const WeightPart* of;
    int64_t columns;
  };
  std::vector<Piece> pieces;
  for (size_t id = 0; id < table_.specs.size(); ++id)
    for (size_t p = 0; p < table_.specs[id].parts.size(); ++p)
      pieces.push_back({static_cast<WeightId>(id), static_cast<int>(p), &table_.specs[id].parts[p],
                        table_.specs[id].columns});
  return run_work_list(static_cast<int64_t>(pieces.size()), threads_, [&](int64_t i) -> Status {
    const Piece& piece = pieces[static_cast<size_t>(i)];
    const std::string& name = piece.of->name;
    return for_row_blocks(piece.of->rows, piece.columns, [&](int64_t first, int64_t count) {
      std::vector<uint16_t> values(static_cast<size_t>(count * piece.columns));
      RETURN_IF_ERROR(base_.read_rows_bf16(name, first, count, values.data()));
      const int64_t bad = bad_row(values.data(), count, piece.columns);
      if (bad >= 0) return not_finite(base_.path(), name, first + bad);
      return backend_->put_rows(piece.weight, piece.part, first, count, values.data());
    });
  });
}

Status LayerWalk::load_layer(int64_t layer) {
  tuned_.reset();
  variant_.reset();
  layer_ = layer;
  table_ = make_layer_table(base_.config(), layer);
  RETURN_IF_ERROR(load_base_rows());
  differs_.clear();
  for (const auto& [name, place] : table_.by_name)
    if (tune_.tensors().count(name) != 0) {
      ASSIGN_OR_RETURN(differs_[name], tune_.differs(name));
    }
  ASSIGN_OR_RETURN(tuned_, tuned_layer());
  return {};
}

// The fine-tune's own values, in bf16.
Status LayerWalk::put_tuned_dense(const WeightTable::Place& place, const std::string& name,
                                  VariantWeights* weights) const {
  const WeightSpec& spec = table_.specs[static_cast<size_t>(place.weight)];
  const int64_t rows = spec.parts[static_cast<size_t>(place.part)].rows, columns = spec.columns;
  const bool as_delta = tune_.tensors().at(name).as_delta;
  return for_row_blocks(rows, columns, [&](int64_t first, int64_t count) -> Status {
    std::vector<uint16_t> values(static_cast<size_t>(count * columns));
    if (as_delta) {
      RETURN_IF_ERROR(tune_.tuned_rows(base_, name, first, count, values.data()));
    } else {
      std::vector<float> wide(values.size());
      RETURN_IF_ERROR(tune_.value_rows(name, first, count, wide.data()));
      std::transform(wide.begin(), wide.end(), values.begin(),
                     [](float v) { return f32_to_bf16(v); });
    }
    const int64_t bad = bad_row(values.data(), count, columns);
    if (bad >= 0) return not_finite(tune_.path(), name, first + bad);
    return weights->put_dense_rows(place.weight, place.part, first, count, values.data());
  });
}

std::vector<std::pair<std::string, WeightTable::Place>> LayerWalk::carried() const {
  std::vector<std::pair<std::string, WeightTable::Place>> found;
  for (const auto& [name, place] : table_.by_name) {
    const auto differs = differs_.find(name);
    if (differs != differs_.end() && differs->second && !tune_.tensors().at(name).as_delta)
      found.emplace_back(name, place);
  }
  return found;
}

std::vector<std::string> LayerWalk::changed_matrices() const {
  std::vector<std::string> found;
  for (const WeightSpec& spec : table_.specs)
    for (const WeightPart& part : spec.parts) {
      const auto differs = differs_.find(part.name);
      if (differs != differs_.end() && differs->second && tune_.tensors().at(part.name).as_delta)
        found.push_back(part.name);
    }
  return found;
}

int64_t LayerWalk::rows_of(const WeightTable::Place& place) const {
  return table_.specs[static_cast<size_t>(place.weight)]
      .parts[static_cast<size_t>(place.part)]
      .rows;
}

Result<std::unique_ptr<VariantWeights>> LayerWalk::tuned_layer() {
  VariantContent content;
  std::map<std::string, LowRankFactors> factors;
  auto dense = carried();
  for (const auto& [name, place] : table_.by_name) {
    const auto differs = differs_.find(name);
    if (differs == differs_.end() || !differs->second || !tune_.tensors().at(name).as_delta)
      continue;
    ASSIGN_OR_RETURN(auto low, tune_.low_rank(name));
    if (low) {
      content.low_rank.push_back({place.weight, place.part, low->rank});
      factors.emplace(name, std::move(*low));
    } else {
      dense.emplace_back(name, place);
    }
  }
  for (const auto& [name, place] : dense)
    content.dense.push_back({place.weight, place.part, rows_of(place)});
  ASSIGN_OR_RETURN(std::unique_ptr<VariantWeights> weights, backend_->new_variant(content));
  for (const auto& [name, low] : factors) {
    const WeightTable::Place& place = table_.by_name.at(name);
    RETURN_IF_ERROR(
        weights->put_low_rank(place.weight, place.part, low.scale, low.a.data(), low.b.data()));
  }
  RETURN_IF_ERROR(run_work_list(static_cast<int64_t>(dense.size()), threads_, [&](int64_t i) {
    const auto& [name, place] = dense[static_cast<size_t>(i)];
    return put_tuned_dense(place, name, weights.get());
  }));
  RETURN_IF_ERROR(weights->finish());
  return weights;
}

Status LayerWalk::set_variant(const std::map<std::string, FittedMatrix>& matrices) {
  VariantContent content;
  std::map<WeightId, int> levels;
  for (const auto& [name, matrix] : matrices) {
    int& most = levels[table_.by_name.at(name).weight];
    most = std::max(most, static_cast<int>(matrix.levels.size()));
  }
  for (const auto& [weight, most] : levels)
    if (most > 0) content.signs.push_back({weight, most});
  std::map<std::string, AdapterFactors> factors;
  for (const auto& [name, matrix] : matrices) {
    if (matrix.low_rank.empty()) continue;
    const WeightTable::Place& place = table_.by_name.at(name);
    const int64_t columns = table_.specs[static_cast<size_t>(place.weight)].columns;
    const int64_t bytes = low_rank_row_bytes(columns, rows_of(place));
    const int64_t rank = static_cast<int64_t>(matrix.low_rank.size()) / bytes;
    ASSIGN_OR_RETURN(factors[name],
                     unpack_low_rank(matrix.low_rank.data(), rank, columns, rows_of(place)));
    content.low_rank.push_back({place.weight, place.part, rank});
  }
  const auto dense = carried();
  for (const auto& [name, place] : dense)
    content.dense.push_back({place.weight, place.part, rows_of(place)});
  ASSIGN_OR_RETURN(variant_, backend_->new_variant(content));
  for (const auto& [name, place] : dense)
    RETURN_IF_ERROR(put_tuned_dense(place, name, variant_.get()));
  for (const auto& [name, part] : factors) {
    const WeightTable::Place& place = table_.by_name.at(name);
    RETURN_IF_ERROR(
        variant_->put_low_rank(place.weight, place.part, 1, part.a.data(), part.b.data()));
  }
  for (const auto& [name, matrix] : matrices) {
    const WeightTable::Place& place = table_.by_name.at(name);
    const int64_t rows = rows_of(place);
    for (size_t l = 0; l < matrix.levels.size(); ++l) {
      const FittedLevel& level = matrix.levels[l];
      std::vector<float> alpha = level.alpha;
      alpha.resize(static_cast<size_t>(rows), alpha[0]);  // one a matrix holds for every row
      RETURN_IF_ERROR(variant_->put_sign_rows(place.weight, place.part, static_cast<int>(l), 0,
                                              rows, level.bits.data()));
      RETURN_IF_ERROR(
          variant_->put_alpha(place.weight, place.part, static_cast<int>(l), alpha.data()));
    }
  }
  return variant_->finish();
}

// As many sequences as fit at once; at least one.
void LayerWalk::for_each_batch(WalkedModel model, const Activations& activations,
                               const std::function<void(int64_t, Batch&)>& run) const {
  const std::vector<TokenSequence>& sequences = *activations.sequences;
  int64_t first_row = 0;
  for (size_t s = 0; s < sequences.size();) {
    Batch batch;
    int64_t rows = 0, blocks = 0;
    for (; s < sequences.size(); ++s) {
      const auto n = static_cast<int64_t>(sequences[s].size());
      if (rows > 0 && (rows + n > kBatchRows || blocks + blocks_for(n) > kBatchBlocks)) break;
      batch.spans.push_back(
          {static_cast<int32_t>(rows), static_cast<int32_t>(rows + n), 0, blocks_.data() + blocks});
      rows += n;
      blocks += blocks_for(n);
    }
    batch.groups = {{0, static_cast<int32_t>(rows), model == WalkedModel::kBase ? kBaseSlot : 0}};
    run(first_row, batch);
    first_row += rows;
  }
}

Status LayerWalk::advance(WalkedModel model, Activations* activations, LayerInputs* inputs) {
  std::vector<const VariantWeights*> slots;
  if (model == WalkedModel::kTune) slots.push_back(tuned_.get());
  if (model == WalkedModel::kVariant) slots.push_back(variant_.get());
  int64_t first = 0;
  const LayerWeights& weights = table_.layers[0];
  if (inputs != nullptr) RETURN_IF_ERROR(make_room(activations->tokens, inputs));
  const Transformer::InputObserver observer = [&](WeightId weight, TensorView x) {
    const LayerInput input = weight == weights.qkv             ? LayerInput::kAttention
                             : weight == weights.attention_out ? LayerInput::kAttentionOut
                             : weight == weights.gate_up       ? LayerInput::kMlp
                                                               : LayerInput::kDown;
    const LayerInputs::Values& to = inputs->of[static_cast<size_t>(input)];
    const size_t row_bytes = static_cast<size_t>(to.columns) * dtype_size(to.type);
    const size_t stride = static_cast<size_t>(x.row_stride) * dtype_size(to.type);
    for (int64_t r = 0; r < x.rows(); ++r)
      std::memcpy(to.x.as<char>() + static_cast<size_t>(first + r) * row_bytes,
                  static_cast<const char*>(x.data) + static_cast<size_t>(r) * stride, row_bytes);
  };
  for_each_batch(model, *activations, [&](int64_t first_row, Batch& batch) {
    first = first_row;
    const int64_t rows = batch.groups[0].end_row;
    const TensorView residual = matrix_view(activations->residual.as<float>() + first_row * stride_,
                                            DType::kF32, rows, config_.hidden, stride_);
    transformer_->run_layer(0, residual, batch, kv_, slots, inputs ? &observer : nullptr);
  });
  return {};
}

Status LayerWalk::make_room(int64_t tokens, LayerInputs* inputs) const {
  const int64_t widths[] = {config_.hidden, config_.heads * config_.head_dim, config_.hidden,
                            config_.intermediate};
  for (size_t i = 0; i < inputs->of.size(); ++i) {
    LayerInputs::Values& values = inputs->of[i];
    values.columns = widths[i];
    values.type = backend_->ops().activation_type();
    ASSIGN_OR_RETURN(values.x, Buffer::cpu(static_cast<size_t>(tokens * values.columns) *
                                           dtype_size(values.type)));
  }
  return {};
}

Result<std::vector<float>> LayerWalk::final_norm(WalkedModel model,
                                                 const Activations& activations) {
  Ops& ops = backend_->ops();
  // The variant has the fine-tune's own norm.
  ops.bind_slot(0, model == WalkedModel::kBase ? nullptr : variant_.get());
  const int64_t hidden = config_.hidden, stride = ops.row_stride(hidden);
  const DType type = ops.activation_type();
  ASSIGN_OR_RETURN(const Buffer normed,
                   Buffer::cpu(static_cast<size_t>(kBatchRows * stride) * dtype_size(type)));
  std::vector<float> out(static_cast<size_t>(activations.tokens * hidden));
  for_each_batch(model, activations, [&](int64_t first, Batch& batch) {
    const int64_t rows = batch.groups[0].end_row;
    const TensorView x = matrix_view(activations.residual.as<float>() + first * stride_,
                                     DType::kF32, rows, hidden, stride_);
    const TensorView y = matrix_view(normed.data(), type, rows, hidden, stride);
    ops.rms_norm(y, x, table_.final_norm, static_cast<float>(config_.rms_eps), batch.groups);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < hidden; ++c)
        out[static_cast<size_t>((first + r) * hidden + c)] =
            type == DType::kF32 ? y.row<float>(r)[c] : bf16_to_f32(y.row<uint16_t>(r)[c]);
  });
  return out;
}

}  // namespace deltad
