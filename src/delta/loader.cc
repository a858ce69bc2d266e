#include "delta/loader.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "base/log.h"
#include "delta/delta_reader.h"
#include "delta/float_codec.h"
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

// Rows of the head that the variant ends up with.
int64_t head_rows(const DeltaFile& delta, HeadSource source, const WeightTable& table) {
  const auto rows_of = [&](WeightId id) {
    const auto it = delta.dense().find(table.specs[static_cast<size_t>(id)].parts[0].name);
    CHECK(it != delta.dense().end(), "the head's source is not in the file");
    return it->second.shape[0];
  };
  switch (source) {
    case HeadSource::kFileHead:
      return rows_of(table.head);
    case HeadSource::kFileEmbeddings:
      return rows_of(table.embedding);
    case HeadSource::kBaseHead:
      break;
  }
  return table.specs[static_cast<size_t>(table.head)].parts[0].rows;
}

// What the file holds, as the backend makes memory for it.
VariantContent content_of(const DeltaFile& delta, const WeightTable& table) {
  std::map<WeightId, int> levels;
  for (const auto& [weight, of_weight] : delta.matrices()) {
    int& most = levels[table.by_name.at(weight).weight];
    most = std::max(most, static_cast<int>(of_weight.size()));
  }
  VariantContent content;
  for (const auto& [weight, count] : levels) content.signs.push_back({weight, count});
  for (const auto& [tensor, entry] : delta.dense()) {
    const WeightTable::Place& at = table.by_name.at(tensor);
    content.dense.push_back({at.weight, at.part, entry.shape[0]});
  }
  return content;
}

Result<DeltaFile> open_checked(const std::string& path, const WeightTable& table,
                               const VariantLoadOptions& options) {
  ASSIGN_OR_RETURN(DeltaFile delta, DeltaFile::open(path));
  RETURN_IF_ERROR(delta.check_base(options.architecture, options.base_digest));
  RETURN_IF_ERROR(delta.check_shapes(table));
  return delta;
}

DeltaReadOptions read_options(const WeightTable& table, const VariantLoadOptions& options) {
  DeltaReadOptions read;
  read.table = &table;
  read.threads = options.threads;
  read.cancelled = options.cancelled;
  read.rate = options.rate;
  return read;
}

Result<size_t> bytes_of(const DeltaFile& delta, const VariantContent& content,
                        const Backend& backend) {
  const Result<size_t> bytes = backend.variant_bytes(content);
  if (!bytes.ok()) return bytes.status().in(delta.path());
  return bytes;
}

}  // namespace

Result<VariantSize> measure_variant(const std::string& path, const WeightTable& table,
                                    const Backend& backend, const VariantLoadOptions& options) {
  ASSIGN_OR_RETURN(const DeltaFile delta, open_checked(path, table, options));
  ASSIGN_OR_RETURN(const size_t bytes, bytes_of(delta, content_of(delta, table), backend));
  return VariantSize{static_cast<int64_t>(bytes), delta.header().digest};
}

Status verify_variant(const std::string& path, const WeightTable& table,
                      const VariantLoadOptions& options) {
  ASSIGN_OR_RETURN(const DeltaFile delta, open_checked(path, table, options));
  return read_delta(delta, read_options(table, options));
}

Result<VariantRef> load_variant(const std::string& name, const std::string& path,
                                const WeightTable& table, Backend& backend,
                                const VariantLoadOptions& options) {
  ASSIGN_OR_RETURN(const DeltaFile delta, open_checked(path, table, options));
  if (delta.header().base_digest.empty() && !options.base_digest.empty())
    log_warning("variant '{}': {} does not say which base it was made for; not checked", name,
                delta.path());

  const VariantContent content = content_of(delta, table);
  if (options.max_bytes > 0) {
    ASSIGN_OR_RETURN(const size_t bytes, bytes_of(delta, content, backend));
    if (bytes > options.max_bytes)
      return resource_exhausted(fmt::format("{}: it takes {} bytes, but {} were set aside for it",
                                            delta.path(), bytes, options.max_bytes));
  }
  auto made = backend.new_variant(content);
  if (!made.ok()) return made.status().in(delta.path());
  std::unique_ptr<VariantWeights> weights = std::move(*made);
  BackendSink sink(table, *weights);
  DeltaReadOptions read = read_options(table, options);
  read.sink = &sink;
  RETURN_IF_ERROR(read_delta(delta, read));

  const bool base_tied = table.specs[static_cast<size_t>(table.head)].alias == table.embedding;
  const HeadSource source = delta.head_source(base_tied);
  if (source == HeadSource::kFileEmbeddings) weights->alias_weight(table.head, table.embedding);
  RETURN_IF_ERROR(weights->finish().in(delta.path()));

  auto variant = std::make_shared<Variant>();
  variant->name = name;
  variant->digest = delta.header().digest;
  variant->vocab = head_rows(delta, source, table);
  variant->bytes = weights->bytes();
  variant->weights = std::move(weights);
  return VariantRef(std::move(variant));
}

}  // namespace deltad
