#include "delta/apply.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <system_error>

#include "delta/delta_reader.h"
#include "delta/float_codec.h"
#include "delta/model_folder.h"
#include "delta/sign_rows.h"
#include "delta/tune.h"
#include "delta/work_list.h"
#include "io/convert.h"
#include "io/safetensors.h"

namespace deltad {
namespace {

constexpr const char* kEmbeddings = "model.embed_tokens.weight";
constexpr const char* kHead = "lm_head.weight";

class Applier {
 public:
  Applier(const Checkpoint& base, const DeltaFile& delta, const ApplyOptions& options)
      : base_(base), delta_(delta), options_(options) {}

  Status check() {
    RETURN_IF_ERROR(check_base_tensors(base_));
    ASSIGN_OR_RETURN(const std::string digest, base_digest(base_));
    RETURN_IF_ERROR(delta_.check_base(base_.config().architecture, digest));
    const WeightTable table = make_weight_table(base_.config());
    RETURN_IF_ERROR(delta_.check_shapes(table));
    DeltaReadOptions read;
    read.table = &table;
    read.threads = options_.jobs;
    RETURN_IF_ERROR(read_delta(delta_, read));
    return plan();
  }

  const FolderModel& model() const { return model_; }

  Result<ApplyReport> write_weights(const std::string& path) {
    std::vector<SafetensorsWriter::Tensor> tensors;
    int64_t total = 0;
    for (const Output& output : outputs_) {
      tensors.push_back({output.name, options_.dtype, output.shape});
      total += output.shape.count() * element();
    }
    ASSIGN_OR_RETURN(writer_, SafetensorsWriter::create(path, {{"format", "pt"}}, tensors));
    RETURN_IF_ERROR(run_work_list(
        static_cast<int64_t>(outputs_.size()), options_.jobs,
        [&](int64_t i) { return write_tensor(outputs_[static_cast<size_t>(i)], total); }));
    RETURN_IF_ERROR(writer_->finish());
    ApplyReport report;
    report.tensors = static_cast<int64_t>(outputs_.size());
    report.bytes = total;
    report.weights = weights_;
    report.lost = lost_;
    return report;
  }

 private:
  struct Output {
    std::string name;
    Shape shape;
    std::string base_name;  // where the base's values come from
  };

  int64_t element() const { return static_cast<int64_t>(dtype_size(options_.dtype)); }

  // Which tensors there will be, and where the head comes from.
  Status plan() {
    const bool base_tied = base_.config().tied_head;
    const auto embeddings = delta_.dense().find(kEmbeddings);
    const HeadSource source = delta_.head_source(base_tied);
    // A base whose head is tied, under new embeddings that the head does not follow: the head gets
    // the base's embeddings as its own.
    const bool split =
        base_tied && source == HeadSource::kBaseHead && embeddings != delta_.dense().end();
    model_.tied_head = source == HeadSource::kFileEmbeddings ||
                       (source == HeadSource::kBaseHead && base_tied && !split);
    model_.dtype = options_.dtype;
    for (const auto& [name, tensor] : base_.tensors()) {
      if (name == kHead && model_.tied_head) continue;
      add(name, tensor.shape, name);
    }
    if (!model_.tied_head && base_.tensors().count(kHead) == 0)
      add(kHead, base_.tensors().at(kEmbeddings).shape, kEmbeddings);
    int64_t head_rows = 0;
    for (const Output& output : outputs_) {
      if (output.name == kEmbeddings) model_.vocab = output.shape[0];
      if (output.name == kHead) head_rows = output.shape[0];
    }
    if (!model_.tied_head && head_rows != model_.vocab)
      return unimplemented(fmt::format(
          "{}: it has {} embeddings but a head of {} rows; a model folder needs as many "
          "of both",
          delta_.path(), model_.vocab, head_rows));
    return {};
  }

  void add(const std::string& name, const Shape& shape, const std::string& base_name) {
    const auto dense = delta_.dense().find(name);
    outputs_.push_back(
        {name, dense == delta_.dense().end() ? shape : dense->second.shape, base_name});
  }

  Status write_tensor(const Output& output, int64_t total) {
    const int64_t step = block_rows(output.shape), columns = columns_of(output.shape);
    const auto matrix = delta_.matrices().find(output.name);
    const auto dense = delta_.dense().find(output.name);
    std::vector<std::vector<float>> alphas;
    if (matrix != delta_.matrices().end()) {
      ASSIGN_OR_RETURN(alphas, read_alphas(matrix->second));
      weights_ += output.shape.count();
    }
    std::vector<uint8_t> out(static_cast<size_t>(step * columns * element()));
    for (int64_t first = 0; first < output.shape[0]; first += step) {
      const int64_t count = std::min(step, output.shape[0] - first), n = count * columns;
      if (matrix != delta_.matrices().end()) {
        RETURN_IF_ERROR(add_levels(output, matrix->second, alphas, first, count, out.data()));
      } else if (dense != delta_.dense().end()) {
        RETURN_IF_ERROR(copy_dense(dense->second, first, count, out.data()));
      } else {
        RETURN_IF_ERROR(copy_base(output.base_name, first, count, columns, out.data()));
      }
      RETURN_IF_ERROR(
          writer_->write(output.name, first * columns * element(), out.data(), n * element()));
      const int64_t done = done_.fetch_add(n * element()) + n * element();
      if (options_.progress) options_.progress(done, total);
    }
    return {};
  }

  Result<std::vector<std::vector<float>>> read_alphas(
      const std::vector<DeltaFile::Level>& levels) const {
    std::vector<std::vector<float>> alphas;
    for (const DeltaFile::Level& level : levels) {
      std::vector<float> alpha(static_cast<size_t>(level.alpha.shape[0]));
      RETURN_IF_ERROR(delta_.file().read(level.alpha, 0, level.alpha.bytes, alpha.data()));
      alphas.push_back(std::move(alpha));
    }
    return alphas;
  }

  // out [count, columns] = W + Σ α·sign in fp64, rounded once.
  Status add_levels(const Output& output, const std::vector<DeltaFile::Level>& levels,
                    const std::vector<std::vector<float>>& alphas, int64_t first, int64_t count,
                    void* out) {
    const int64_t columns = output.shape[1], n = count * columns, row_bytes = (columns + 7) / 8;
    std::vector<uint16_t> base(static_cast<size_t>(n));
    std::vector<float> values(static_cast<size_t>(n));
    std::vector<double> change(static_cast<size_t>(n));
    std::vector<uint8_t> bits(static_cast<size_t>(count * row_bytes));
    RETURN_IF_ERROR(base_.read_rows_bf16(output.base_name, first, count, base.data()));
    for (size_t level = 0; level < levels.size(); ++level) {
      RETURN_IF_ERROR(delta_.file().read(levels[level].sign, first * row_bytes,
                                         static_cast<int64_t>(bits.size()), bits.data()));
      for (int64_t r = 0; r < count; ++r) {
        const auto at = static_cast<size_t>(alphas[level].size() == 1 ? 0 : first + r);
        add_signs(bits.data() + r * row_bytes, columns, alphas[level][at],
                  change.data() + r * columns);
      }
    }
    bf16_to_f32(base.data(), values.data(), n);
    if (options_.dtype == DType::kF32) {
      auto* wide = static_cast<float*>(out);
      for (int64_t i = 0; i < n; ++i) {
        const auto at = static_cast<size_t>(i);
        wide[i] = static_cast<float>(static_cast<double>(values[at]) + change[at]);
      }
      return {};
    }
    auto* rounded = static_cast<uint16_t*>(out);
    int64_t lost = 0;
    for (int64_t i = 0; i < n; ++i) {
      const auto at = static_cast<size_t>(i);
      rounded[i] = f64_to_bf16(static_cast<double>(values[at]) + change[at]);
      lost += rounded[i] == base[at] && change[at] != 0;
    }
    lost_ += lost;
    return {};
  }

  Status copy_dense(const SafetensorsEntry& entry, int64_t first, int64_t count, void* out) const {
    const auto stored = static_cast<int64_t>(dtype_size(entry.dtype));
    const int64_t columns = columns_of(entry.shape), n = count * columns;
    std::vector<uint8_t> raw(static_cast<size_t>(n * stored));
    RETURN_IF_ERROR(delta_.file().read(entry, first * columns * stored, n * stored, raw.data()));
    if (options_.dtype == DType::kF32) {
      widen(entry.dtype, n, raw.data(), static_cast<float*>(out));
      return {};
    }
    std::vector<float> values(static_cast<size_t>(n));
    widen(entry.dtype, n, raw.data(), values.data());
    f32_to_bf16(values.data(), static_cast<uint16_t*>(out), n);
    return {};
  }

  Status copy_base(const std::string& name, int64_t first, int64_t count, int64_t columns,
                   void* out) const {
    if (options_.dtype == DType::kBF16)
      return base_.read_rows_bf16(name, first, count, static_cast<uint16_t*>(out));
    std::vector<uint16_t> values(static_cast<size_t>(count * columns));
    RETURN_IF_ERROR(base_.read_rows_bf16(name, first, count, values.data()));
    bf16_to_f32(values.data(), static_cast<float*>(out), count * columns);
    return {};
  }

  const Checkpoint& base_;
  const DeltaFile& delta_;
  const ApplyOptions& options_;
  FolderModel model_;
  std::vector<Output> outputs_;
  std::unique_ptr<SafetensorsWriter> writer_;
  std::atomic<int64_t> done_{0}, weights_{0}, lost_{0};
};

}  // namespace

Result<ApplyReport> apply(const Checkpoint& base, const DeltaFile& delta,
                          const std::string& variant_path, const std::string& folder,
                          const ApplyOptions& options) {
  Applier applier(base, delta, options);
  RETURN_IF_ERROR(applier.check());
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error)
    return internal_error(fmt::format("{}: cannot make the folder: {}", folder, error.message()));
  RETURN_IF_ERROR(write_model_files(base, variant_path, applier.model(), folder));
  return applier.write_weights((std::filesystem::path(folder) / "model.safetensors").string());
}

}  // namespace deltad
