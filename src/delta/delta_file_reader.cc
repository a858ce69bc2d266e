// A variant file as the loader reads it (variant_reader.h), through read_delta.
#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "delta/delta_reader.h"
#include "delta/float_codec.h"
#include "delta/variant_reader.h"
#include "io/convert.h"

namespace deltad {
namespace {

// Hands the blocks of a variant file to the backend.
class BackendSink : public DeltaSink {
 public:
  BackendSink(const WeightTable& table, VariantWeights& weights)
      : table_(table), weights_(weights) {}

  Status sign_rows(const std::string& weight, int level, int64_t first, int64_t count,
                   const uint8_t* bits) override {
    const WeightTable::Place& at = table_.by_name.at(weight);
    return weights_.put_sign_rows(at.weight, at.part, level, first, count, bits);
  }

  // One α a matrix becomes one a row, so that fused matrices work.
  Status alpha(const std::string& weight, int level, int64_t count, const float* alpha) override {
    const WeightTable::Place& at = table_.by_name.at(weight);
    const int64_t rows = spec(at).parts[static_cast<size_t>(at.part)].rows;
    if (count == rows) return weights_.put_alpha(at.weight, at.part, level, alpha);
    const std::vector<float> expanded(static_cast<size_t>(rows), alpha[0]);
    return weights_.put_alpha(at.weight, at.part, level, expanded.data());
  }

  Status low_rank(const std::string& weight, const AdapterFactors& factors) override {
    const WeightTable::Place& at = table_.by_name.at(weight);
    return weights_.put_low_rank(at.weight, at.part, static_cast<float>(factors.scale),
                                 factors.a.data(), factors.b.data());
  }

  Status dense_rows(const std::string& weight, int64_t first, int64_t count, DType type,
                    const void* values) override {
    const WeightTable::Place& at = table_.by_name.at(weight);
    if (type == DType::kBF16)
      return weights_.put_dense_rows(at.weight, at.part, first, count,
                                     static_cast<const uint16_t*>(values));
    const int64_t n = count * spec(at).columns;
    std::vector<float> wide(static_cast<size_t>(n));
    std::vector<uint16_t> rounded(static_cast<size_t>(n));
    widen(type, n, values, wide.data());
    f32_to_bf16(wide.data(), rounded.data(), n);
    return weights_.put_dense_rows(at.weight, at.part, first, count, rounded.data());
  }

 private:
  const WeightSpec& spec(const WeightTable::Place& at) const {
    return table_.specs[static_cast<size_t>(at.weight)];
  }
  const WeightTable& table_;
  VariantWeights& weights_;
};

// What the file holds, as the backend makes memory for it.
VariantContent content_of(const DeltaFile& delta, const WeightTable& table) {
  std::map<WeightId, int> levels;
  for (const auto& [weight, of_weight] : delta.matrices()) {
    int& most = levels[table.by_name.at(weight).weight];
    most = std::max(most, static_cast<int>(of_weight.size()));
  }
  VariantContent content;
  for (const auto& [weight, count] : levels) content.signs.push_back({weight, count});
  for (const auto& [weight, entry] : delta.low_rank()) {
    const WeightTable::Place& at = table.by_name.at(weight);
    content.low_rank.push_back({at.weight, at.part, entry.shape[0]});
  }
  for (const auto& [tensor, entry] : delta.dense()) {
    const WeightTable::Place& at = table.by_name.at(tensor);
    content.dense.push_back({at.weight, at.part, entry.shape[0]});
  }
  return content;
}

class DeltaFileReader final : public VariantReader {
 public:
  DeltaFileReader(DeltaFile delta, const WeightTable& table, const VariantLoadOptions& options)
      : delta_(std::move(delta)),
        table_(table),
        options_(options),
        content_(content_of(delta_, table)) {}

  const std::string& path() const override { return delta_.path(); }
  const VariantContent& content() const override { return content_; }
  std::string claimed_digest() const override { return delta_.header().digest; }
  bool head_follows_embeddings() const override {
    const bool tied = table_.specs[static_cast<size_t>(table_.head)].alias == table_.embedding;
    return delta_.head_source(tied) == HeadSource::kFileEmbeddings;
  }
  bool says_base() const override { return !delta_.header().base_digest.empty(); }

  Result<std::string> read(VariantWeights* weights) const override {
    DeltaReadOptions read;
    read.table = &table_;
    read.threads = options_.threads;
    read.ranks = options_.ranks;
    read.cancelled = options_.cancelled;
    read.rate = options_.rate;
    std::optional<BackendSink> sink;
    if (weights != nullptr) read.sink = &sink.emplace(table_, *weights);
    RETURN_IF_ERROR(read_delta(delta_, read));
    return delta_.header().digest;
  }

 private:
  const DeltaFile delta_;
  const WeightTable& table_;
  const VariantLoadOptions& options_;
  const VariantContent content_;
};

}  // namespace

Result<std::unique_ptr<VariantReader>> open_delta_reader(const std::string& path,
                                                         const WeightTable& table,
                                                         const VariantLoadOptions& options) {
  ASSIGN_OR_RETURN(DeltaFile delta, DeltaFile::open(path));
  RETURN_IF_ERROR(delta.check_base(options.architecture, options.base_digest));
  RETURN_IF_ERROR(delta.check_shapes(table));
  return std::unique_ptr<VariantReader>(
      std::make_unique<DeltaFileReader>(std::move(delta), table, options));
}

}  // namespace deltad
