#include "delta/lora_adapter.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "delta/float_codec.h"
#include "delta/variant_path.h"

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

Shape shape_of(const std::string& weight, const WeightTable& table) {
  const WeightTable::Place& at = table.by_name.at(weight);
  const WeightSpec& spec = table.specs[static_cast<size_t>(at.weight)];
  Shape shape{spec.parts[static_cast<size_t>(at.part)].rows};
  if (spec.kind != WeightKind::kVector) shape.append(spec.columns);
  return shape;
}

}  // namespace

Result<LoraAdapter> LoraAdapter::open(const std::string& path, const WeightTable* table) {
  LoraAdapter adapter;
  adapter.has_base_ = table != nullptr;
  if (is_directory(path))
    RETURN_IF_ERROR(adapter.open_peft(path, table));
  else if (path.ends_with(kAdapterSuffix))
    RETURN_IF_ERROR(adapter.open_packed(path, table));
  else if (path.ends_with(".safetensors"))
    return invalid_argument(fmt::format(
        "{}: not an adapter: expected a PEFT folder (the one with {}), a GGUF file or a "
        "packed adapter ({})",
        path, kAdapterConfig, kAdapterSuffix));
  else
    RETURN_IF_ERROR(adapter.open_gguf(path, table));
  RETURN_IF_ERROR(adapter.check_all(table));
  if (table != nullptr) RETURN_IF_ERROR(adapter.settle_head(*table));
  return adapter;
}

Status LoraAdapter::wrong(const std::string& tensor, const std::string& what) const {
  return invalid_argument(fmt::format("{}: tensor '{}': {}", path(), tensor, what));
}

Status LoraAdapter::open_peft(const std::string& folder, const WeightTable* table) {
  config_path_ = (fs::path(folder) / kAdapterConfig).string();
  ASSIGN_OR_RETURN(config_text_, read_file(config_path_, kMaxAdapterConfigBytes));
  ASSIGN_OR_RETURN(config_, LoraConfig::parse(config_text_, config_path_));
  ASSIGN_OR_RETURN(const std::shared_ptr<FileReader> reader,
                   FileReader::open((fs::path(folder) / kAdapterWeights).string()));
  reader_ = reader;
  ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::open(reader));
  return collect_peft(file, table);
}

// Sorts the file's tensors by the weight that each belongs to.
Status LoraAdapter::collect_peft(const SafetensorsFile& file, const WeightTable* table) {
  std::vector<std::string> strangers;
  for (const auto& [name, entry] : file.tensors()) {
    if (name.find("lora_magnitude_vector") != std::string::npos)
      return unimplemented(
          fmt::format("{}: tensor '{}': DoRA is not supported, only plain LoRA", path(), name));
    if (!is_float(entry.dtype))
      return wrong(
          name, fmt::format("its type is {}, expected F32, F16 or BF16", dtype_name(entry.dtype)));
    const std::optional<AdapterName> parsed = parse_name(name);
    if (!parsed || (table != nullptr && table->by_name.count(parsed->module + ".weight") == 0)) {
      strangers.push_back(name);
      continue;
    }
    AdapterChange& change = changes_[parsed->module + ".weight"];
    std::optional<AdapterTensor>* to = &change.whole;
    if (parsed->role == AdapterRole::kA || parsed->role == AdapterRole::kEmbeddingA) to = &change.a;
    if (parsed->role == AdapterRole::kB || parsed->role == AdapterRole::kEmbeddingB) to = &change.b;
    change.embedding |= parsed->role == AdapterRole::kEmbeddingA;
    if (*to) return wrong(name, fmt::format("means the same as '{}'", (*to)->name));
    *to = AdapterTensor{name, entry};
  }
  if (!strangers.empty()) {
    std::string list;
    for (const std::string& name : strangers) list += "\n  " + name;
    return invalid_argument(
        fmt::format("{}: {} of {} tensors {}:{}", path(), strangers.size(), file.tensors().size(),
                    table != nullptr ? "belong to no module of the base"
                                     : "are not named like a module's weight or its factors",
                    list));
  }
  for (auto& [weight, change] : changes_) {
    if (change.whole) continue;
    const std::string module = weight.substr(0, weight.size() - 7);
    ASSIGN_OR_RETURN(const bool target, config_.is_target(module));
    if (!target)
      return wrong((change.a ? change.a : change.b)->name,
                   fmt::format("{} does not name its module: target_modules, exclude_modules and "
                               "layers_to_transform leave it out",
                               config_path_));
    ASSIGN_OR_RETURN(const LoraConfig::Scale scale, config_.scale_of(module));
    change.rank = scale.rank;
    change.scale = scale.factor;
  }
  return {};
}

Status LoraAdapter::check_all(const WeightTable* table) {
  if (changes_.empty())
    return invalid_argument(fmt::format("{}: the adapter holds no tensors", path()));
  for (auto& [weight, change] : changes_) {
    RETURN_IF_ERROR(change.whole ? check_whole(weight, table, change)
                                 : check(weight, table, &change));
  }
  return {};
}

Status LoraAdapter::check_whole(const std::string& weight, const WeightTable* table,
                                const AdapterChange& change) const {
  if (change.a || change.b)
    return wrong(change.whole->name, "the adapter holds low-rank factors of the same module");
  const Shape& found = change.whole->entry.shape;
  if (table == nullptr && (found.rank() > 2 || found.count() < 1))
    return wrong(change.whole->name,
                 fmt::format("its shape is {}, expected a vector or a matrix", found.str()));
  if (table == nullptr) return {};
  const Shape expected = shape_of(weight, *table);
  const bool is_table = weight == kEmbeddings || weight == kHead;
  const bool fits =
      found == expected || (is_table && found.rank() == 2 && found[0] >= expected[0] &&
                            found[0] <= INT32_MAX && found[1] == expected[1]);
  if (fits) return {};
  return wrong(change.whole->name, fmt::format("its shape is {}, expected {}{}", found.str(),
                                               expected.str(), is_table ? " or more rows" : ""));
}

// Factors: shapes against the base (without one: each other) and the rank.
Status LoraAdapter::check(const std::string& weight, const WeightTable* table,
                          AdapterChange* change) const {
  if (!change->a || !change->b)
    return wrong((change->a ? change->a : change->b)->name,
                 "its other factor (lora_A or lora_B) is missing");
  for (const auto* factor : {&*change->a, &*change->b})
    if (factor->entry.shape.rank() != 2 || factor->entry.shape.count() < 1)
      return wrong(factor->name, fmt::format("its shape is {}, expected that of a matrix",
                                             factor->entry.shape.str()));
  const int64_t in = change->a->entry.shape[1], out = change->b->entry.shape[0];
  const Shape shape = table != nullptr    ? shape_of(weight, *table)
                      : change->embedding ? Shape{in, out}
                                          : Shape{out, in};
  if (shape.rank() != 2)
    return wrong(change->a->name, "low-rank factors of a tensor that is no matrix");
  if (change->embedding != (weight == kEmbeddings))
    return wrong(change->a->name, weight == kEmbeddings
                                      ? "expected lora_embedding_A for the embeddings"
                                      : "only the embeddings have lora_embedding_A");
  if (change->rank < 1 || change->rank > kMaxLowRank)
    return wrong(change->a->name,
                 fmt::format("its rank is {}, expected 1 to {}", change->rank, kMaxLowRank));
  if (!std::isfinite(static_cast<float>(change->scale)))
    return wrong(change->a->name,
                 fmt::format("its scale is {}, expected a number of fp32", change->scale));
  // PEFT keeps fan_in_fan_out from mattering for linear layers, which all of these are: their
  // factors are always A [r, d_in], B [d_out, r]. Embeddings have them the other way round.
  const int64_t inputs = change->embedding ? shape[0] : shape[1];
  const int64_t outputs = change->embedding ? shape[1] : shape[0];
  for (const auto& [factor, expected] : {std::pair{&*change->a, Shape{change->rank, inputs}},
                                         std::pair{&*change->b, Shape{outputs, change->rank}}})
    if (!(factor->entry.shape == expected))
      return wrong(factor->name, fmt::format("its shape is {}, expected {}",
                                             factor->entry.shape.str(), expected.str()));
  return {};
}

// Where the base's head is tied, embeddings of the adapter take the head along only if they replace
// the base's own: PEFT saves those under both names. Low-rank factors and modules_to_save are
// copies beside the base's embeddings, which the head goes on using, unless the config ties them.
Status LoraAdapter::settle_head(const WeightTable& table) {
  const bool tied = table.specs[static_cast<size_t>(table.head)].alias == table.embedding;
  const auto embeddings = changes_.find(kEmbeddings), head = changes_.find(kHead);
  if (!tied || embeddings == changes_.end()) return {};
  if (head == changes_.end()) {
    head_follows_ = config_.ties_embeddings();
    return {};
  }
  if (!embeddings->second.whole || !head->second.whole) return {};
  ASSIGN_OR_RETURN(const bool same,
                   equal_bytes(embeddings->second.whole->entry, head->second.whole->entry));
  if (!same) return {};
  head_follows_ = true;
  changes_.erase(head);
  return {};
}

Result<bool> LoraAdapter::equal_bytes(const SafetensorsEntry& x, const SafetensorsEntry& y) const {
  if (x.dtype != y.dtype || !(x.shape == y.shape)) return false;
  constexpr int64_t kStep = int64_t{1} << 20;
  std::vector<uint8_t> p(kStep), q(kStep);
  for (int64_t at = 0; at < x.bytes; at += kStep) {
    const int64_t count = std::min(kStep, x.bytes - at);
    RETURN_IF_ERROR(reader_->read(x.offset + at, count, p.data()));
    RETURN_IF_ERROR(reader_->read(y.offset + at, count, q.data()));
    if (!std::equal(p.begin(), p.begin() + count, q.begin())) return false;
  }
  return true;
}

Status LoraAdapter::unchanged() const {
  RETURN_IF_ERROR(reader_->unchanged());
  if (config_path_.empty()) return {};
  const Result<std::string> now = read_file(config_path_, kMaxAdapterConfigBytes);
  if (now.ok() && *now == config_text_) return {};
  return unavailable(fmt::format("{}: it changed while the adapter was read", config_path_));
}

Status LoraAdapter::read_rows(const AdapterChange& change, const AdapterTensor& tensor,
                              int64_t first, int64_t count, float* out) const {
  if (change.packed) return read_packed_rows(change, &tensor == &*change.a, first, count, out);
  const SafetensorsEntry& e = tensor.entry;
  const int64_t columns = e.shape.rank() == 2 ? e.shape[1] : 1;
  const auto row_bytes = columns * static_cast<int64_t>(dtype_size(e.dtype));
  std::vector<uint8_t> raw(static_cast<size_t>(count * row_bytes));
  if (change.head_rows == 0 || &tensor == &*change.a) {
    RETURN_IF_ERROR(reader_->read(e.offset + first * row_bytes, count * row_bytes, raw.data()));
  } else {
    for (int64_t r = 0; r < count; ++r)
      RETURN_IF_ERROR(
          reader_->read(e.offset + gguf_head_row(first + r, change.head_rows) * row_bytes,
                        row_bytes, raw.data() + r * row_bytes));
  }
  widen(e.dtype, count * columns, raw.data(), out);
  return {};
}

}  // namespace deltad
