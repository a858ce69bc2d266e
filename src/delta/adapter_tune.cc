// A LoRA adapter as a Tune. Low-rank pairs of block matrices give Δ = s·BA itself; pairs of the
// embeddings or the head, and tensors saved whole (modules_to_save), are carried dense.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "delta/float_codec.h"
#include "delta/lora_adapter.h"
#include "delta/tune.h"
#include "delta/variant_path.h"
#include "tensor/float16.h"

namespace deltad {
namespace {

constexpr const char* kEmbeddings = "model.embed_tokens.weight";

class AdapterTune : public Tune {
 public:
  AdapterTune(const Checkpoint& base, std::string path, LoraAdapter adapter)
      : base_(base), path_(std::move(path)), adapter_(std::move(adapter)) {
    for (const auto& [weight, change] : adapter_.changes()) {
      if (change.whole) {
        tensors_[weight] = {change.whole->entry.shape, false, change.whole->entry.dtype};
        continue;
      }
      const Shape &a = change.a->entry.shape, &b = change.b->entry.shape;
      const Shape shape = change.embedding ? Shape{a[1], b[0]} : Shape{b[0], a[1]};
      tensors_[weight] = {shape, is_block_matrix(weight), DType::kBF16};
    }
    tied_head_ = base.config().tied_head &&
                 (tensors_.count(kEmbeddings) == 0 || adapter_.head_follows_embeddings());
  }

  const std::string& path() const override { return path_; }
  const std::map<std::string, TunedTensor>& tensors() const override { return tensors_; }
  bool tied_head() const override { return tied_head_; }
  std::string text_file(const std::string& name) const override {
    auto text = variant_text_file(path_, name);
    return text.ok() ? *text : std::string();
  }

  Result<bool> differs(const std::string& name) const override {
    const TunedTensor& tensor = tensors_.at(name);
    if (!tensor.as_delta) return values_differ(base_, *this, name);
    const int64_t step = block_rows(tensor.shape);
    std::vector<double> delta(static_cast<size_t>(step * tensor.shape[1]));
    for (int64_t first = 0; first < tensor.shape[0]; first += step) {
      const int64_t count = std::min(step, tensor.shape[0] - first);
      RETURN_IF_ERROR(delta_rows(name, first, count, nullptr, delta.data()));
      const auto end = delta.begin() + count * tensor.shape[1];
      if (std::any_of(delta.begin(), end, [](double d) { return d != 0; })) return true;
    }
    return false;
  }

  // s·B[first…, r] · A[r, d_in]
  Status delta_rows(const std::string& name, int64_t first, int64_t count, const uint16_t*,
                    double* delta) const override {
    const AdapterChange& change = adapter_.changes().at(name);
    const int64_t columns = tensors_.at(name).shape[1], rank = change.rank;
    std::vector<float> a(static_cast<size_t>(rank * columns)), b(static_cast<size_t>(count * rank));
    RETURN_IF_ERROR(adapter_.read_rows(change, *change.a, 0, rank, a.data()));
    RETURN_IF_ERROR(adapter_.read_rows(change, *change.b, first, count, b.data()));
    const std::vector<double> wide(a.begin(), a.end());
    for (int64_t r = 0; r < count; ++r) {
      double* out = delta + r * columns;
      std::fill(out, out + columns, 0.0);
      for (int64_t k = 0; k < rank; ++k) {
        const double factor = b[static_cast<size_t>(r * rank + k)];
        const double* row = wide.data() + k * columns;
        for (int64_t c = 0; c < columns; ++c) out[c] += factor * row[c];
      }
      for (int64_t c = 0; c < columns; ++c) out[c] *= change.scale;
    }
    return {};
  }

  Result<std::optional<LowRankFactors>> low_rank(const std::string& name) const override {
    const AdapterChange& change = adapter_.changes().at(name);
    if (!change.a) return std::optional<LowRankFactors>();
    const Shape& shape = tensors_.at(name).shape;
    LowRankFactors factors{change.rank, static_cast<float>(change.scale), {}, {}};
    factors.a.resize(static_cast<size_t>(change.rank * shape[1]));
    factors.b.resize(static_cast<size_t>(shape[0] * change.rank));
    RETURN_IF_ERROR(adapter_.read_rows(change, *change.a, 0, change.rank, factors.a.data()));
    RETURN_IF_ERROR(adapter_.read_rows(change, *change.b, 0, shape[0], factors.b.data()));
    return std::optional<LowRankFactors>(std::move(factors));
  }

  Status value_rows(const std::string& name, int64_t first, int64_t count,
                    float* values) const override {
    const AdapterChange& change = adapter_.changes().at(name);
    if (change.whole) return adapter_.read_rows(change, *change.whole, first, count, values);
    // W + Δ of the embeddings or the head, rounded once to bf16.
    const int64_t columns = tensors_.at(name).shape[1];
    std::vector<uint16_t> base(static_cast<size_t>(count * columns));
    std::vector<double> delta(base.size());
    const std::string source = base_.tensors().count(name) != 0 ? name : kEmbeddings;
    RETURN_IF_ERROR(base_.read_rows_bf16(source, first, count, base.data()));
    if (change.embedding)
      RETURN_IF_ERROR(embedding_delta(change, first, count, columns, delta.data()));
    else
      RETURN_IF_ERROR(delta_rows(name, first, count, nullptr, delta.data()));
    for (size_t i = 0; i < base.size(); ++i)
      values[i] = bf16_to_f32(f64_to_bf16(static_cast<double>(bf16_to_f32(base[i])) + delta[i]));
    return {};
  }

 private:
  // Δ[v, h] = s · Σ_k A[k, v] · B[h, k] for rows v = first, …
  Status embedding_delta(const AdapterChange& change, int64_t first, int64_t count, int64_t columns,
                         double* delta) const {
    const int64_t rank = change.rank, vocab = change.a->entry.shape[1];
    const auto element = static_cast<int64_t>(dtype_size(change.a->entry.dtype));
    std::vector<float> b(static_cast<size_t>(columns * rank)), a(static_cast<size_t>(count));
    RETURN_IF_ERROR(adapter_.read_rows(change, *change.b, 0, columns, b.data()));
    std::vector<uint8_t> raw(static_cast<size_t>(count * element));
    std::fill(delta, delta + count * columns, 0.0);
    for (int64_t k = 0; k < rank; ++k) {
      RETURN_IF_ERROR(adapter_.reader().read(change.a->entry.offset + (k * vocab + first) * element,
                                             count * element, raw.data()));
      widen(change.a->entry.dtype, count, raw.data(), a.data());
      for (int64_t v = 0; v < count; ++v)
        for (int64_t h = 0; h < columns; ++h)
          delta[v * columns + h] += static_cast<double>(a[static_cast<size_t>(v)]) *
                                    static_cast<double>(b[static_cast<size_t>(h * rank + k)]);
    }
    for (int64_t i = 0; i < count * columns; ++i) delta[i] *= change.scale;
    return {};
  }

  const Checkpoint& base_;
  const std::string path_;
  const LoraAdapter adapter_;
  std::map<std::string, TunedTensor> tensors_;
  bool tied_head_ = false;
};

}  // namespace

Result<std::unique_ptr<Tune>> open_adapter(const Checkpoint& base, const std::string& path) {
  RETURN_IF_ERROR(check_base_tensors(base));
  ASSIGN_OR_RETURN(LoraAdapter adapter, LoraAdapter::open(path, make_weight_table(base.config())));
  return std::unique_ptr<Tune>(std::make_unique<AdapterTune>(base, path, std::move(adapter)));
}

}  // namespace deltad
