// A variant file as a Tune: Δ = Σ α·sign + B·A for its matrices, and the tensors that it carries
// whole.
#include <fmt/core.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "delta/delta_file.h"
#include "delta/delta_reader.h"
#include "delta/float_codec.h"
#include "delta/low_rank_part.h"
#include "delta/sign_rows.h"
#include "delta/tune.h"
#include "delta/variant_path.h"

namespace deltad {
namespace {

class VariantTune : public Tune {
 public:
  VariantTune(std::string path, DeltaFile delta)
      : path_(std::move(path)), delta_(std::move(delta)) {}

  Status load(const Checkpoint& base) {
    ASSIGN_OR_RETURN(const std::string digest, base_digest(base));
    RETURN_IF_ERROR(delta_.check_base(base.config().architecture, digest));
    const WeightTable table = make_weight_table(base.config());
    RETURN_IF_ERROR(delta_.check_shapes(table));
    DeltaReadOptions read;
    read.table = &table;
    RETURN_IF_ERROR(read_delta(delta_, read));
    for (const auto& [name, levels] : delta_.matrices()) {
      tensors_[name] = {base.tensors().at(name).shape, true, DType::kBF16};
      for (const DeltaFile::Level& level : levels) {
        std::vector<float>& alpha =
            alphas_[name].emplace_back(static_cast<size_t>(level.alpha.shape[0]));
        RETURN_IF_ERROR(delta_.file().read(level.alpha, 0, level.alpha.bytes, alpha.data()));
      }
    }
    for (const auto& [name, entry] : delta_.low_rank()) {
      const Shape& shape = base.tensors().at(name).shape;
      tensors_[name] = {shape, true, DType::kBF16};
      std::vector<uint8_t> rows(static_cast<size_t>(entry.bytes));
      RETURN_IF_ERROR(delta_.file().read(entry, 0, entry.bytes, rows.data()));
      ASSIGN_OR_RETURN(factors_[name],
                       unpack_low_rank(rows.data(), entry.shape[0], shape[1], shape[0]));
    }
    for (const auto& [name, entry] : delta_.dense())
      tensors_[name] = {entry.shape, false, entry.dtype};
    const HeadSource head = delta_.head_source(base.config().tied_head);
    const bool new_embeddings = delta_.dense().count("model.embed_tokens.weight") != 0;
    tied_head_ = head == HeadSource::kFileEmbeddings ||
                 (head == HeadSource::kBaseHead && base.config().tied_head && !new_embeddings);
    return {};
  }

  const std::string& path() const override { return path_; }
  const std::map<std::string, TunedTensor>& tensors() const override { return tensors_; }
  bool tied_head() const override { return tied_head_; }
  Result<bool> differs(const std::string&) const override { return true; }
  std::string text_file(const std::string& name) const override {
    auto text = variant_text_file(path_, name);
    return text.ok() ? *text : std::string();
  }

  Status delta_rows(const std::string& name, int64_t first, int64_t count, const uint16_t*,
                    double* delta) const override {
    const int64_t columns = tensors_.at(name).shape[1], row_bytes = (columns + 7) / 8;
    std::fill(delta, delta + count * columns, 0.0);
    if (const auto factors = factors_.find(name); factors != factors_.end())
      add_low_rank(factors->second, first, count, 1, delta);
    if (delta_.matrices().count(name) == 0) return {};
    const std::vector<DeltaFile::Level>& levels = delta_.matrices().at(name);
    const std::vector<std::vector<float>>& alphas = alphas_.at(name);
    std::vector<uint8_t> bits(static_cast<size_t>(count * row_bytes));
    for (size_t level = 0; level < levels.size(); ++level) {
      RETURN_IF_ERROR(delta_.file().read(levels[level].sign, first * row_bytes,
                                         static_cast<int64_t>(bits.size()), bits.data()));
      for (int64_t r = 0; r < count; ++r) {
        const auto at = static_cast<size_t>(alphas[level].size() == 1 ? 0 : first + r);
        add_signs(bits.data() + r * row_bytes, columns, alphas[level][at], delta + r * columns);
      }
    }
    return {};
  }

  Status value_rows(const std::string& name, int64_t first, int64_t count,
                    float* values) const override {
    const SafetensorsEntry& entry = delta_.dense().at(name);
    const auto element = static_cast<int64_t>(dtype_size(entry.dtype));
    const int64_t columns = columns_of(entry.shape), n = count * columns;
    std::vector<uint8_t> raw(static_cast<size_t>(n * element));
    RETURN_IF_ERROR(delta_.file().read(entry, first * columns * element, n * element, raw.data()));
    widen(entry.dtype, n, raw.data(), values);
    return {};
  }

 private:
  const std::string path_;
  const DeltaFile delta_;
  std::map<std::string, TunedTensor> tensors_;
  std::map<std::string, std::vector<std::vector<float>>> alphas_;  // of each level: [d_out] or [1]
  std::map<std::string, AdapterFactors> factors_;
  bool tied_head_ = false;
};

}  // namespace

Result<std::unique_ptr<Tune>> open_variant_tune(const Checkpoint& base, const std::string& path) {
  RETURN_IF_ERROR(check_base_tensors(base));
  ASSIGN_OR_RETURN(DeltaFile delta, DeltaFile::open(path));
  auto tune = std::make_unique<VariantTune>(path, std::move(delta));
  RETURN_IF_ERROR(tune->load(base));
  return std::unique_ptr<Tune>(std::move(tune));
}

Result<std::unique_ptr<Tune>> open_tune(const Checkpoint& base, const std::string& path) {
  ASSIGN_OR_RETURN(const TuneForm form, tune_form(path));
  if (form == TuneForm::kModel) return open_tuned_model(base, path);
  return form == TuneForm::kAdapter ? open_adapter(base, path) : open_variant_tune(base, path);
}

}  // namespace deltad
