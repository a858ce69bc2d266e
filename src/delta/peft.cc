// A PEFT LoRA folder as a Tune. Low-rank pairs of block matrices give Δ = s·BA itself; pairs of the
// embeddings or the head, and tensors saved whole (modules_to_save), are carried dense.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>
#include <utility>
#include <vector>

#include "delta/float_codec.h"
#include "delta/lora_config.h"
#include "delta/tune.h"
#include "delta/variant_path.h"
#include "io/safetensors.h"
#include "tensor/float16.h"

namespace deltad {
namespace fs = std::filesystem;
namespace {

constexpr const char* kEmbeddings = "model.embed_tokens.weight";
constexpr const char* kHead = "lm_head.weight";

enum class AdapterRole { kA, kB, kEmbeddingA, kEmbeddingB, kWhole };

struct AdapterName {
  std::string module;  // without the wrapper's prefix: "model.layers.0.mlp.up_proj"
  AdapterRole role;
};

bool cut_end(std::string* text, const std::string& end) {
  if (text->size() <= end.size() || text->compare(text->size() - end.size(), end.size(), end) != 0)
    return false;
  text->resize(text->size() - end.size());
  return true;
}

// "base_model.model.X.lora_A.weight", with ".default" before ".weight" in older files.
std::optional<AdapterName> parse_name(std::string name) {
  const std::string prefix = "base_model.model.";
  if (name.compare(0, prefix.size(), prefix) == 0) name.erase(0, prefix.size());
  for (const auto& [end, role] : {std::pair{".lora_embedding_A", AdapterRole::kEmbeddingA},
                                  std::pair{".lora_embedding_B", AdapterRole::kEmbeddingB}}) {
    std::string module = name;
    cut_end(&module, ".default");
    if (cut_end(&module, end)) return AdapterName{module, role};
  }
  if (!cut_end(&name, ".weight")) return std::nullopt;
  std::string module = name;
  cut_end(&module, ".default");
  if (cut_end(&module, ".lora_A")) return AdapterName{module, AdapterRole::kA};
  if (cut_end(&module, ".lora_B")) return AdapterName{module, AdapterRole::kB};
  if (cut_end(&module, ".modules_to_save")) return AdapterName{module, AdapterRole::kWhole};
  return AdapterName{name, AdapterRole::kWhole};
}

struct Factor {
  std::string name;  // as in the file; "" if it is not there
  const SafetensorsEntry* entry = nullptr;
};

// What the adapter does to one weight.
struct Change {
  Factor a, b;   // a [r, d_in], b [d_out, r]; of embeddings [r, V] and [H, r]
  Factor whole;  // saved whole
  bool embedding = false;
  int64_t rank = 0;
  double scale = 0;
};

class Adapter : public Tune {
 public:
  Adapter(const Checkpoint& base, std::string path) : base_(base), path_(std::move(path)) {}

  Status load() {
    const std::string config_path = (fs::path(path_) / "adapter_config.json").string();
    ASSIGN_OR_RETURN(const std::string json, read_file(config_path));
    ASSIGN_OR_RETURN(config_, LoraConfig::parse(json, config_path));
    ASSIGN_OR_RETURN(
        file_, SafetensorsFile::open((fs::path(path_) / "adapter_model.safetensors").string()));
    RETURN_IF_ERROR(collect());
    for (auto& [weight, change] : changes_) RETURN_IF_ERROR(check(weight, &change));
    return settle_head();
  }

  const std::string& path() const override { return path_; }
  const std::map<std::string, TunedTensor>& tensors() const override { return tensors_; }
  bool tied_head() const override { return tied_head_; }
  std::string text_file(const std::string& name) const override {
    auto text = read_file((fs::path(path_) / name).string());
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
    const Change& change = changes_.at(name);
    const int64_t columns = tensors_.at(name).shape[1], rank = change.rank;
    std::vector<float> a(static_cast<size_t>(rank * columns)), b(static_cast<size_t>(count * rank));
    RETURN_IF_ERROR(read_rows(change.a, 0, rank, a.data()));
    RETURN_IF_ERROR(read_rows(change.b, first, count, b.data()));
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

  Status value_rows(const std::string& name, int64_t first, int64_t count,
                    float* values) const override {
    const Change& change = changes_.at(name);
    if (change.whole.entry != nullptr) return read_rows(change.whole, first, count, values);
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
  Status wrong(const std::string& tensor, const std::string& what) const {
    return invalid_argument(fmt::format("{}: tensor '{}': {}", file_.path(), tensor, what));
  }

  // Sorts the file's tensors by the weight that each belongs to.
  Status collect() {
    const WeightTable table = make_weight_table(base_.config());
    std::vector<std::string> strangers;
    for (const auto& [name, entry] : file_.tensors()) {
      if (name.find("lora_magnitude_vector") != std::string::npos)
        return unimplemented(fmt::format("{}: tensor '{}': DoRA is not supported, only plain LoRA",
                                         file_.path(), name));
      if (!is_float(entry.dtype))
        return wrong(name, fmt::format("its type is {}, expected F32, F16 or BF16",
                                       dtype_name(entry.dtype)));
      const std::optional<AdapterName> parsed = parse_name(name);
      if (!parsed || table.by_name.count(parsed->module + ".weight") == 0) {
        strangers.push_back(name);
        continue;
      }
      Change& change = changes_[parsed->module + ".weight"];
      Factor* factor = &change.whole;
      if (parsed->role == AdapterRole::kA || parsed->role == AdapterRole::kEmbeddingA)
        factor = &change.a;
      else if (parsed->role == AdapterRole::kB || parsed->role == AdapterRole::kEmbeddingB)
        factor = &change.b;
      change.embedding |= parsed->role == AdapterRole::kEmbeddingA;
      if (factor->entry != nullptr)
        return wrong(name, fmt::format("means the same as '{}'", factor->name));
      *factor = {name, &entry};
    }
    if (!strangers.empty()) {
      std::string list;
      for (const std::string& name : strangers) list += "\n  " + name;
      return invalid_argument(
          fmt::format("{}: {} of {} tensors belong to no module of the base {}:{}", file_.path(),
                      strangers.size(), file_.tensors().size(), base_.config().name, list));
    }
    if (changes_.empty())
      return invalid_argument(fmt::format("{}: the adapter holds no tensors", file_.path()));
    return {};
  }

  // Shapes against the base, rank and scale from the config.
  Status check(const std::string& weight, Change* change) {
    const auto in_base = base_.tensors().find(weight);
    const Shape shape = in_base != base_.tensors().end() ? in_base->second.shape
                                                         : base_.tensors().at(kEmbeddings).shape;
    const bool is_table = weight == kEmbeddings || weight == kHead;
    if (change->whole.entry != nullptr) {
      const Shape& found = change->whole.entry->shape;
      if (change->a.entry != nullptr || change->b.entry != nullptr)
        return wrong(change->whole.name, "the adapter holds low-rank factors of the same module");
      const bool fits = found == shape || (is_table && found.rank() == 2 && found[0] >= shape[0] &&
                                           found[1] == shape[1]);
      if (!fits)
        return wrong(change->whole.name, fmt::format("its shape is {}, expected {}{}", found.str(),
                                                     shape.str(), is_table ? " or more rows" : ""));
      tensors_[weight] = {found, false, change->whole.entry->dtype};
      return {};
    }
    if (change->a.entry == nullptr || change->b.entry == nullptr) {
      const Factor& present = change->a.entry != nullptr ? change->a : change->b;
      return wrong(present.name, "its other factor (lora_A or lora_B) is missing");
    }
    if (shape.rank() != 2)
      return wrong(change->a.name, "low-rank factors of a tensor that is no matrix");
    if (change->embedding != (weight == kEmbeddings))
      return wrong(change->a.name, weight == kEmbeddings
                                       ? "expected lora_embedding_A for the embeddings"
                                       : "only the embeddings have lora_embedding_A");
    ASSIGN_OR_RETURN(const LoraConfig::Scale scale,
                     config_.scale_of(weight.substr(0, weight.size() - 7)));
    change->rank = scale.rank;
    change->scale = scale.factor;
    // PEFT keeps fan_in_fan_out from mattering for linear layers, which all of these are: their
    // factors are always A [r, d_in], B [d_out, r]. Embeddings have them the other way round.
    const int64_t inputs = change->embedding ? shape[0] : shape[1];
    const int64_t outputs = change->embedding ? shape[1] : shape[0];
    const Shape expected_a{scale.rank, inputs}, expected_b{outputs, scale.rank};
    if (!(change->a.entry->shape == expected_a))
      return wrong(change->a.name, fmt::format("its shape is {}, expected {}",
                                               change->a.entry->shape.str(), expected_a.str()));
    if (!(change->b.entry->shape == expected_b))
      return wrong(change->b.name, fmt::format("its shape is {}, expected {}",
                                               change->b.entry->shape.str(), expected_b.str()));
    tensors_[weight] = {shape, is_block_matrix(weight), DType::kBF16};
    return {};
  }

  // Where the base's head is tied, embeddings of the adapter take the head along only if they
  // replace the base's own: PEFT saves those under both names. Low-rank factors and
  // modules_to_save are copies beside the base's embeddings, which the head goes on using, unless
  // the config ties them.
  Status settle_head() {
    tied_head_ = base_.config().tied_head;
    const auto embeddings = changes_.find(kEmbeddings), head = changes_.find(kHead);
    if (!tied_head_ || embeddings == changes_.end()) return {};
    tied_head_ = config_.ties_embeddings();
    if (head == changes_.end()) return {};
    const Factor &e = embeddings->second.whole, &h = head->second.whole;
    if (e.entry == nullptr || h.entry == nullptr) return {};
    ASSIGN_OR_RETURN(const bool same, equal_bytes(*e.entry, *h.entry));
    if (!same) return {};
    tied_head_ = true;
    tensors_.erase(kHead);
    return {};
  }

  Result<bool> equal_bytes(const SafetensorsEntry& x, const SafetensorsEntry& y) const {
    if (x.dtype != y.dtype || !(x.shape == y.shape)) return false;
    constexpr int64_t kStep = int64_t{1} << 20;
    std::vector<uint8_t> p(kStep), q(kStep);
    for (int64_t at = 0; at < x.bytes; at += kStep) {
      const int64_t count = std::min(kStep, x.bytes - at);
      RETURN_IF_ERROR(file_.read(x, at, count, p.data()));
      RETURN_IF_ERROR(file_.read(y, at, count, q.data()));
      if (!std::equal(p.begin(), p.begin() + count, q.begin())) return false;
    }
    return true;
  }

  Status read_rows(const Factor& factor, int64_t first, int64_t count, float* out) const {
    const int64_t columns = columns_of(factor.entry->shape);
    const auto element = static_cast<int64_t>(dtype_size(factor.entry->dtype));
    std::vector<uint8_t> raw(static_cast<size_t>(count * columns * element));
    RETURN_IF_ERROR(file_.read(*factor.entry, first * columns * element,
                               static_cast<int64_t>(raw.size()), raw.data()));
    widen(factor.entry->dtype, count * columns, raw.data(), out);
    return {};
  }

  // Δ[v, h] = s · Σ_k A[k, v] · B[h, k] for rows v = first, …
  Status embedding_delta(const Change& change, int64_t first, int64_t count, int64_t columns,
                         double* delta) const {
    const int64_t rank = change.rank, vocab = change.a.entry->shape[1];
    const auto element = static_cast<int64_t>(dtype_size(change.a.entry->dtype));
    std::vector<float> b(static_cast<size_t>(columns * rank)), a(static_cast<size_t>(count));
    RETURN_IF_ERROR(read_rows(change.b, 0, columns, b.data()));
    std::vector<uint8_t> raw(static_cast<size_t>(count * element));
    std::fill(delta, delta + count * columns, 0.0);
    for (int64_t k = 0; k < rank; ++k) {
      RETURN_IF_ERROR(
          file_.read(*change.a.entry, (k * vocab + first) * element, count * element, raw.data()));
      widen(change.a.entry->dtype, count, raw.data(), a.data());
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
  LoraConfig config_;
  SafetensorsFile file_;
  std::map<std::string, Change> changes_;
  std::map<std::string, TunedTensor> tensors_;
  bool tied_head_ = false;
};

}  // namespace

Result<std::unique_ptr<Tune>> open_adapter(const Checkpoint& base, const std::string& path) {
  RETURN_IF_ERROR(check_base_tensors(base));
  auto adapter = std::make_unique<Adapter>(base, path);
  RETURN_IF_ERROR(adapter->load());
  return std::unique_ptr<Tune>(std::move(adapter));
}

}  // namespace deltad
