// What both forms of a fine-tune share, and the whole model.
#include "delta/tune.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/mutex.h"
#include "delta/float_codec.h"
#include "tensor/float16.h"

namespace deltad {
namespace {

constexpr const char* kEmbeddings = "model.embed_tokens.weight";
constexpr const char* kHead = "lm_head.weight";

Status same_number(const std::string& path, const char* key, double found, double expected) {
  if (found == expected) return {};
  return invalid_argument(
      fmt::format("{}: {} is {}, expected the base's, {}", path, key, found, expected));
}

// All that a variant cannot change: it runs in the base's transformer.
Status check_config(const std::string& path, const ModelConfig& tuned, const ModelConfig& base) {
  if (tuned.architecture != base.architecture)
    return invalid_argument(fmt::format("{}: its architecture is {}, expected the base's, {}", path,
                                        tuned.architecture, base.architecture));
  const std::tuple<const char*, double, double> numbers[] = {
      {"hidden_size", tuned.hidden, base.hidden},
      {"num_hidden_layers", tuned.layers, base.layers},
      {"num_attention_heads", tuned.heads, base.heads},
      {"num_key_value_heads", tuned.kv_heads, base.kv_heads},
      {"head_dim", tuned.head_dim, base.head_dim},
      {"intermediate_size", tuned.intermediate, base.intermediate},
      {"rope_theta", tuned.rope_theta, base.rope_theta}};
  for (const auto& [key, found, expected] : numbers)
    RETURN_IF_ERROR(same_number(path, key, found, expected));
  // GGUF keeps it in fp32.
  RETURN_IF_ERROR(same_number(path, "rms_norm_eps", static_cast<float>(tuned.rms_eps),
                              static_cast<float>(base.rms_eps)));
  if (tuned.vocab < base.vocab)
    return invalid_argument(fmt::format("{}: vocab_size is {}, expected the base's, {}, or more",
                                        path, tuned.vocab, base.vocab));
  return {};
}

class TunedModel : public Tune {
 public:
  TunedModel(const Checkpoint& base, std::unique_ptr<Checkpoint> tuned)
      : base_(base), tuned_(std::move(tuned)) {}

  Status check() {
    RETURN_IF_ERROR(check_config(path(), tuned_->config(), base_.config()));
    const WeightTable table = make_weight_table(base_.config());
    for (const auto& [name, tensor] : tuned_->tensors()) {
      if (table.by_name.count(name) == 0)
        return invalid_argument(
            fmt::format("{}: tensor '{}': the base has no tensor of that name", path(), name));
      const auto in_base = base_.tensors().find(name);
      const Shape expected = in_base != base_.tensors().end()
                                 ? in_base->second.shape
                                 : base_.tensors().at(kEmbeddings).shape;  // a head of its own
      const bool may_grow = name == kEmbeddings || name == kHead;
      const bool fits = tensor.shape == expected ||
                        (may_grow && tensor.shape.rank() == 2 && expected.rank() == 2 &&
                         tensor.shape[0] >= expected[0] && tensor.shape[1] == expected[1]);
      if (!fits)
        return invalid_argument(fmt::format("{}: tensor '{}': its shape is {}, expected {}{}",
                                            path(), name, tensor.shape.str(), expected.str(),
                                            may_grow ? " or more rows" : ""));
      const DType type = tensor.stored_type == "F32"   ? DType::kF32
                         : tensor.stored_type == "F16" ? DType::kF16
                                                       : DType::kBF16;
      tensors_[name] = {tensor.shape, is_block_matrix(name), type};
      exact_[name] = type != DType::kBF16 || tensor.stored_type == "BF16";
    }
    for (const auto& [name, tensor] : base_.tensors()) {
      if (tensors_.count(name) == 0 && !(name == kHead && tuned_->config().tied_head))
        return invalid_argument(fmt::format("{}: tensor '{}' is missing", path(), name));
    }
    return {};
  }

  const std::string& path() const override { return tuned_->path(); }
  const std::map<std::string, TunedTensor>& tensors() const override { return tensors_; }
  bool tied_head() const override { return tuned_->config().tied_head; }
  const Checkpoint* checkpoint() const override { return tuned_.get(); }
  std::string text_file(const std::string& name) const override { return tuned_->text_file(name); }

  Result<bool> differs(const std::string& name) const override {
    // A head that is tied here and not in the base is the file's embeddings (DESIGN "The head of a
    // variant"), so they have to be there.
    if (name == kEmbeddings && tied_head() && !base_.config().tied_head) return true;
    {
      MutexLock lock(mutex_);
      if (const auto known = differs_.find(name); known != differs_.end()) return known->second;
    }
    ASSIGN_OR_RETURN(const bool differs, values_differ(base_, *this, name));
    MutexLock lock(mutex_);
    differs_[name] = differs;
    return differs;
  }

  Status delta_rows(const std::string& name, int64_t first, int64_t count, const uint16_t* base,
                    double* delta) const override {
    const int64_t n = count * columns_of(tensors_.at(name).shape);
    std::vector<float> values(static_cast<size_t>(n));
    RETURN_IF_ERROR(tuned_->read_rows_f32(name, first, count, values.data()));
    for (int64_t i = 0; i < n; ++i)
      delta[i] = static_cast<double>(values[static_cast<size_t>(i)]) -
                 static_cast<double>(bf16_to_f32(base[i]));
    return {};
  }

  // What is stored is the sum.
  Status tuned_rows(const Checkpoint&, const std::string& name, int64_t first, int64_t count,
                    uint16_t* tuned) const override {
    return tuned_->read_rows_bf16(name, first, count, tuned);
  }

  Status value_rows(const std::string& name, int64_t first, int64_t count,
                    float* values) const override {
    if (exact_.at(name)) return tuned_->read_rows_f32(name, first, count, values);
    // Quantised: carried as the bf16 values that the daemon would hold.
    const int64_t n = count * columns_of(tensors_.at(name).shape);
    std::vector<uint16_t> rounded(static_cast<size_t>(n));
    RETURN_IF_ERROR(tuned_->read_rows_bf16(name, first, count, rounded.data()));
    for (int64_t i = 0; i < n; ++i) values[i] = bf16_to_f32(rounded[static_cast<size_t>(i)]);
    return {};
  }

 private:
  const Checkpoint& base_;
  const std::unique_ptr<Checkpoint> tuned_;
  std::map<std::string, TunedTensor> tensors_;
  std::map<std::string, bool> exact_;  // the stored type holds its values exactly
  mutable Mutex mutex_;
  mutable std::map<std::string, bool> differs_ GUARDED_BY(mutex_);  // as far as it was asked
};

}  // namespace

Status Tune::tuned_rows(const Checkpoint& base, const std::string& name, int64_t first,
                        int64_t count, uint16_t* tuned) const {
  std::vector<double> delta(static_cast<size_t>(count * columns_of(tensors().at(name).shape)));
  RETURN_IF_ERROR(base.read_rows_bf16(name, first, count, tuned));
  RETURN_IF_ERROR(delta_rows(name, first, count, tuned, delta.data()));
  for (size_t i = 0; i < delta.size(); ++i)
    tuned[i] = f64_to_bf16(static_cast<double>(bf16_to_f32(tuned[i])) + delta[i]);
  return {};
}

Status check_base_tensors(const Checkpoint& base) {
  const WeightTable table = make_weight_table(base.config());
  for (const auto& [name, place] : table.by_name) {
    const auto found = base.tensors().find(name);
    if (found == base.tensors().end()) {
      if (name == kHead && base.config().tied_head) continue;
      return invalid_argument(fmt::format("{}: tensor '{}' is missing", base.path(), name));
    }
    const WeightSpec& spec = table.specs[static_cast<size_t>(place.weight)];
    Shape expected{spec.parts[static_cast<size_t>(place.part)].rows};
    if (spec.kind != WeightKind::kVector) expected.append(spec.columns);
    if (!(found->second.shape == expected))
      return invalid_argument(fmt::format("{}: tensor '{}': its shape is {}, expected {}",
                                          base.path(), name, found->second.shape.str(),
                                          expected.str()));
  }
  return {};
}

int64_t block_rows(const Shape& shape) {
  return std::clamp<int64_t>((int64_t{1} << 18) / std::max<int64_t>(1, columns_of(shape)), 1,
                             std::max<int64_t>(1, shape[0]));
}

Result<bool> values_differ(const Checkpoint& base, const Tune& tune, const std::string& name) {
  const Shape& shape = tune.tensors().at(name).shape;
  const auto in_base = base.tensors().find(name);
  if (in_base == base.tensors().end() || !(in_base->second.shape == shape)) return true;
  const int64_t step = block_rows(shape), columns = columns_of(shape);
  std::vector<float> mine(static_cast<size_t>(step * columns)), theirs(mine.size());
  bool from_stored = false, from_rounded = false;
  for (int64_t first = 0; first < shape[0]; first += step) {
    const int64_t count = std::min(step, shape[0] - first);
    RETURN_IF_ERROR(tune.value_rows(name, first, count, mine.data()));
    RETURN_IF_ERROR(base.read_rows_f32(name, first, count, theirs.data()));
    for (size_t i = 0; i < static_cast<size_t>(count * columns); ++i) {
      from_stored |= mine[i] != theirs[i];
      from_rounded |= mine[i] != bf16_to_f32(f32_to_bf16(theirs[i]));
    }
    if (from_stored && from_rounded) return true;
  }
  return false;
}

Result<std::unique_ptr<Tune>> open_tuned_model(const Checkpoint& base, const std::string& path) {
  RETURN_IF_ERROR(check_base_tensors(base));
  ASSIGN_OR_RETURN(std::unique_ptr<Checkpoint> tuned, Checkpoint::open(path));
  auto model = std::make_unique<TunedModel>(base, std::move(tuned));
  RETURN_IF_ERROR(model->check());
  return std::unique_ptr<Tune>(std::move(model));
}

}  // namespace deltad
