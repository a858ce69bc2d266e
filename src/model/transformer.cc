#include "model/transformer.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/check.h"

namespace deltad {
namespace {

// Of ranks: 40 MB where a vocabulary is 152k wide.
constexpr int64_t kFewestLogitRows = 64;

int64_t pad16(int64_t n) { return WeightSpec::pad(n); }

int64_t next_power_of_two(int64_t n) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(n)));
}

// The first `rows` rows of a buffer as a matrix.
TensorView view(const Buffer& buffer, DType dtype, int64_t rows, int64_t columns, int64_t stride) {
  return matrix_view(buffer.data(), dtype, rows, columns, stride, buffer.device());
}

// [positions, head_dim]: cosines, then sines, of position · theta^(−2i/head_dim), i < head_dim/2.
void fill_cos_sin(float* out, int64_t positions, int64_t head_dim, double theta) {
  const int64_t half = head_dim / 2;
  for (int64_t i = 0; i < half; ++i) {
    const double frequency =
        std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
    for (int64_t p = 0; p < positions; ++p) {
      const double angle = static_cast<double>(p) * frequency;
      out[p * head_dim + i] = static_cast<float>(std::cos(angle));
      out[p * head_dim + half + i] = static_cast<float>(std::sin(angle));
    }
  }
}

// The groups of the rows that are gathered for logits: rows keep their order, so groups stay
// contiguous.
std::vector<RowGroup> groups_of_rows(const std::vector<int32_t>& rows,
                                     const std::vector<RowGroup>& groups) {
  std::vector<RowGroup> out;
  size_t g = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    while (rows[i] >= groups[g].end_row) ++g;
    const int32_t at = static_cast<int32_t>(i);
    if (!out.empty() && out.back().slot == groups[g].slot) {
      out.back().end_row = at + 1;
    } else {
      out.push_back({at, at + 1, groups[g].slot});
    }
  }
  return out;
}

}  // namespace

Transformer::Transformer(const ModelConfig& config, const WeightTable& table, Backend& backend,
                         Communicator* communicator)
    : config_(config), table_(table), backend_(backend), communicator_(communicator) {}

Result<std::unique_ptr<Transformer>> Transformer::make(const ModelConfig& config,
                                                       const WeightTable& table, Backend& backend,
                                                       int64_t max_rows, int64_t max_positions,
                                                       Communicator* communicator) {
  std::unique_ptr<Transformer> made(new Transformer(config, table, backend, communicator));
  const WeightSpec& qkv = table.specs[static_cast<size_t>(table.layers.at(0).qkv)];
  made->shape_ = {static_cast<int32_t>(config.heads),
                  static_cast<int32_t>(config.kv_heads),
                  static_cast<int32_t>(config.head_dim),
                  static_cast<int32_t>(qkv.part_offset(0)),
                  static_cast<int32_t>(qkv.part_offset(1)),
                  static_cast<int32_t>(qkv.part_offset(2)),
                  static_cast<float>(1.0 / std::sqrt(static_cast<double>(config.head_dim)))};
  made->max_rows_ = max_rows;
  made->positions_ = max_positions;
  const Ops& ops = backend.ops();
  RETURN_IF_ERROR(ops.check_shape(made->shape_));
  made->hidden_stride_ = std::max(ops.row_stride(config.hidden), pad16(config.hidden));
  made->attended_stride_ = ops.row_stride(config.heads * config.head_dim);
  made->qkv_stride_ = qkv.rows();
  made->gated_stride_ = std::max(ops.row_stride(config.intermediate), pad16(config.intermediate));
  const size_t rows = static_cast<size_t>(max_rows), act = dtype_size(ops.activation_type());
  const auto bytes = [&](int64_t stride, size_t element) {
    return rows * static_cast<size_t>(stride) * element;
  };
  ASSIGN_OR_RETURN(made->residual_, backend.allocate(bytes(made->hidden_stride_, sizeof(float))));
  if (communicator != nullptr) {
    for (Buffer& partial : made->partials_) {
      ASSIGN_OR_RETURN(partial, backend.allocate(bytes(made->hidden_stride_, sizeof(float))));
    }
  }
  ASSIGN_OR_RETURN(made->gathered_, backend.allocate(bytes(made->hidden_stride_, sizeof(float))));
  ASSIGN_OR_RETURN(made->normed_, backend.allocate(bytes(made->hidden_stride_, act)));
  ASSIGN_OR_RETURN(made->qkv_, backend.allocate(bytes(made->qkv_stride_, sizeof(float))));
  ASSIGN_OR_RETURN(made->attended_, backend.allocate(bytes(made->attended_stride_, act)));
  ASSIGN_OR_RETURN(made->gated_, backend.allocate(bytes(made->gated_stride_, act)));
  std::vector<float> cos_sin(static_cast<size_t>(max_positions * config.head_dim));
  fill_cos_sin(cos_sin.data(), max_positions, config.head_dim, config.rope_theta);
  ASSIGN_OR_RETURN(made->cos_sin_, backend.allocate(cos_sin.size() * sizeof(float)));
  RETURN_IF_ERROR(backend.upload(made->cos_sin_.data(), cos_sin.data(), made->cos_sin_.bytes()));
  return made;
}

size_t Transformer::workspace_bytes() const {
  size_t bytes = 0;
  for (const Buffer* buffer : {&residual_, &partials_[0], &partials_[1], &normed_, &qkv_,
                               &attended_, &gated_, &gathered_, &logits_, &cos_sin_})
    bytes += buffer->bytes();
  return bytes;
}

// Logits memory grows to what is asked for, and by a variant with a larger vocabulary; it never
// shrinks. What is given back waits for all devices without a bound, other ranks' that may hang
// among them: with these it begins with room for many rows, and grows seldom.
Status Transformer::ensure_logits(int64_t rows, int64_t columns) {
  if (rows <= logits_rows_ && columns <= logits_columns_) return Status();
  if (communicator_) {
    if (logits_rows_ > 0) RETURN_IF_ERROR(communicator_->settle());
    rows = std::min(max_rows_, next_power_of_two(std::max(rows, kFewestLogitRows)));
  }
  const int64_t new_rows = std::max(rows, logits_rows_),
                new_columns = std::max(columns, logits_columns_);
  ASSIGN_OR_RETURN(Buffer grown,
                   backend_.allocate(static_cast<size_t>(new_rows * new_columns) * sizeof(float)));
  logits_ = std::move(grown);
  logits_rows_ = new_rows;
  logits_columns_ = new_columns;
  return Status();
}

// Never the one before, which other ranks may still read.
TensorView Transformer::next_partial(int64_t rows) {
  turn_ = 1 - turn_;
  return view(partials_[turn_], DType::kF32, rows, config_.hidden, hidden_stride_);
}

int64_t Transformer::vocab_of(int32_t slot, std::span<const VariantWeights* const> slots) const {
  if (slot != kBaseSlot) {
    const int64_t own = slots[static_cast<size_t>(slot)]->dense_rows(table_.head);
    if (own > 0) return own;
  }
  return config_.vocab;
}

void Transformer::begin(const Batch& batch, std::span<const VariantWeights* const> slots,
                        std::span<const RowGroup> logit_groups) {
  for (const SequenceSpan& span : batch.spans)
    CHECK(span.first_position + (span.end_row - span.first_row) <= positions_,
          "position beyond the context");
  for (size_t s = 0; s < slots.size(); ++s)
    backend_.ops().bind_slot(static_cast<int32_t>(s), slots[s]);
  backend_.ops().begin_step({batch.ids, batch.groups, batch.spans, batch.logit_rows, logit_groups});
}

Status Transformer::observe(const Observer& observer, int index, TensorView hidden) {
  ASSIGN_OR_RETURN(const TensorView values, backend_.ops().download(hidden));
  observer(index, values);
  return {};
}

void Transformer::run_layer(int64_t layer, TensorView residual, const Batch& batch,
                            const KvView& kv, std::span<const VariantWeights* const> slots,
                            const InputObserver* inputs) {
  CHECK(residual.rows() > 0 && residual.rows() <= max_rows_, "rows of a batch");
  CHECK(communicator_ == nullptr, "a layer alone is of a whole model");
  begin(batch, slots, {});
  const Status status = run_block(layer, residual, batch, kv, inputs);
  CHECK(status.ok(), "without other ranks nothing fails");
}

Status Transformer::run_block(int64_t layer, TensorView residual, const Batch& batch,
                              const KvView& kv, const InputObserver* inputs) {
  Ops& ops = backend_.ops();
  const DType act = ops.activation_type();
  const LayerWeights& w = table_.layers[static_cast<size_t>(layer)];
  const int64_t m = residual.rows();
  const float eps = static_cast<float>(config_.rms_eps);
  const auto linear = [&](TensorView out, TensorView x, WeightId weight, Epilogue epilogue) {
    if (inputs) (*inputs)(weight, x);
    ops.linear(out, x, weight, batch.groups, epilogue);
  };
  // A layer whose input is divided among the ranks: its output is the sum of theirs, which the
  // residual stream gets once.
  const auto add_linear = [&](TensorView x, WeightId weight) -> Status {
    if (communicator_ == nullptr) {
      linear(residual, x, weight, Epilogue::kAddResidual);
      return {};
    }
    const TensorView partial = next_partial(m);
    linear(partial, x, weight, Epilogue::kStore);
    return communicator_->all_reduce(residual, partial, Epilogue::kAddResidual);
  };
  const TensorView normed = view(normed_, act, m, config_.hidden, hidden_stride_);
  const TensorView qkv = view(qkv_, DType::kF32, m, qkv_stride_, qkv_stride_);
  const TensorView attended =
      view(attended_, act, m, config_.heads * config_.head_dim, attended_stride_);
  const TensorView gated = view(gated_, act, m, config_.intermediate, gated_stride_);
  const TensorView cos_sin =
      view(cos_sin_, DType::kF32, positions_, config_.head_dim, config_.head_dim);

  ops.rms_norm(normed, residual, w.attention_norm, eps, batch.groups);
  if (inputs) (*inputs)(w.qkv, normed);
  ops.linear_rope_append(qkv, normed, w.qkv, batch.groups, shape_, cos_sin, kv,
                         static_cast<int32_t>(layer), batch.spans);
  ops.attention(attended, qkv, shape_, kv, static_cast<int32_t>(layer), batch.spans);
  RETURN_IF_ERROR(add_linear(attended, w.attention_out));

  ops.rms_norm(normed, residual, w.mlp_norm, eps, batch.groups);
  linear(gated, normed, w.gate_up, Epilogue::kSiluGate);
  return add_linear(gated, w.down);
}

Result<Logits> Transformer::forward(const Batch& batch, const KvView& kv,
                                    std::span<const VariantWeights* const> slots,
                                    const Observer* observer) {
  Logits out;
  ASSIGN_OR_RETURN(const TensorView logits, order(batch, kv, slots, observer, 0, out.vocab));
  if (communicator_ && !out.vocab.empty()) RETURN_IF_ERROR(communicator_->settle());
  ASSIGN_OR_RETURN(out.values, backend_.ops().end_step(logits));
  return out;
}

Result<std::vector<SampleOutcome>> Transformer::forward_sampled(
    const Batch& batch, const KvView& kv, std::span<const VariantWeights* const> slots,
    std::span<const SampleRequest> wanted, const std::function<void()>& meanwhile,
    std::span<const int64_t> whole_vocab) {
  std::vector<int64_t> vocab;
  const int64_t columns =
      whole_vocab.empty() ? 0 : *std::max_element(whole_vocab.begin(), whole_vocab.end());
  ASSIGN_OR_RETURN(const TensorView logits, order(batch, kv, slots, nullptr, columns, vocab));
  if (vocab.empty()) {
    RETURN_IF_ERROR(backend_.ops().end_step({}).status());
    return std::vector<SampleOutcome>();
  }
  if (communicator_) return sample_collected(logits, whole_vocab, wanted, meanwhile);
  return backend_.ops().end_step_sampled(logits, vocab, wanted, [&]() -> Status {
    if (meanwhile) meanwhile();
    return {};
  });
}

// Each rank waits for its own device, within the bound, and so hears of it when that fails.
Result<std::vector<SampleOutcome>> Transformer::sample_collected(
    TensorView logits, std::span<const int64_t> whole_vocab, std::span<const SampleRequest> wanted,
    const std::function<void()>& meanwhile) {
  if (communicator_->rank() != 0) {
    RETURN_IF_ERROR(communicator_->collect({}, logits));
    RETURN_IF_ERROR(backend_.ops().end_step({}).status());
    RETURN_IF_ERROR(communicator_->settle());
    return std::vector<SampleOutcome>();
  }
  const int64_t columns = *std::max_element(whole_vocab.begin(), whole_vocab.end());
  const TensorView whole = view(logits_, DType::kF32, logits.rows(), columns, logits_columns_);
  RETURN_IF_ERROR(communicator_->collect(whole, logits));
  return backend_.ops().end_step_sampled(whole, whole_vocab, wanted, [&] {
    if (meanwhile) meanwhile();
    return communicator_->settle();
  });
}

Result<TensorView> Transformer::order(const Batch& batch, const KvView& kv,
                                      std::span<const VariantWeights* const> slots,
                                      const Observer* observer, int64_t columns,
                                      std::vector<int64_t>& out_vocab) {
  Ops& ops = backend_.ops();
  const int64_t m = static_cast<int64_t>(batch.ids.size());
  const int64_t r = static_cast<int64_t>(batch.logit_rows.size());
  CHECK(m > 0 && m <= max_rows_, "rows of a batch");
  if (communicator_) RETURN_IF_ERROR(communicator_->begin_step());
  const std::vector<RowGroup> groups = groups_of_rows(batch.logit_rows, batch.groups);
  int64_t widest = 0;
  for (const RowGroup& g : groups) {
    const int64_t vocab = vocab_of(g.slot, slots);
    widest = std::max(widest, vocab);
    out_vocab.insert(out_vocab.end(), static_cast<size_t>(g.end_row - g.first_row), vocab);
  }
  if (r > 0) RETURN_IF_ERROR(ensure_logits(r, pad16(std::max({widest, columns, config_.vocab}))));
  begin(batch, slots, groups);

  const float eps = static_cast<float>(config_.rms_eps);
  const DType act = ops.activation_type();
  const TensorView residual = view(residual_, DType::kF32, m, config_.hidden, hidden_stride_);
  const TensorView embedded = communicator_ ? next_partial(m) : residual;
  ops.embed(embedded, table_.embedding, batch.ids, batch.groups);
  if (communicator_)
    RETURN_IF_ERROR(communicator_->all_reduce(residual, embedded, Epilogue::kStore));
  if (observer) RETURN_IF_ERROR(observe(*observer, -1, residual));
  for (int64_t layer = 0; layer < config_.layers; ++layer) {
    RETURN_IF_ERROR(run_block(layer, residual, batch, kv, nullptr));
    if (observer) RETURN_IF_ERROR(observe(*observer, static_cast<int>(layer), residual));
  }
  if (observer) {
    const TensorView normed = view(normed_, act, m, config_.hidden, hidden_stride_);
    ops.rms_norm(normed, residual, table_.final_norm, eps, batch.groups);
    RETURN_IF_ERROR(observe(*observer, static_cast<int>(config_.layers), normed));
  }

  if (r == 0) return TensorView();
  const TensorView gathered = view(gathered_, DType::kF32, r, config_.hidden, hidden_stride_);
  const TensorView normed = view(normed_, act, r, config_.hidden, hidden_stride_);
  const TensorView logits = view(logits_, DType::kF32, r, widest, logits_columns_);
  ops.gather_rows(gathered, residual, batch.logit_rows);
  ops.rms_norm(normed, gathered, table_.final_norm, eps, groups);
  ops.linear(logits, normed, table_.head, groups, Epilogue::kStore);
  return logits;
}

}  // namespace deltad
