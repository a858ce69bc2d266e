#include "delta/tune_folder.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "delta/float_codec.h"
#include "delta/model_folder.h"
#include "delta/work_list.h"
#include "io/safetensors.h"
#include "tensor/float16.h"

namespace deltad {
namespace {

namespace fs = std::filesystem;
constexpr const char* kEmbeddings = "model.embed_tokens.weight";
constexpr const char* kHead = "lm_head.weight";

class FolderWriter {
 public:
  FolderWriter(const Checkpoint& base, const Tune& tune, const TuneFolderOptions& options)
      : base_(base), tune_(tune), options_(options) {}

  Result<TuneFolderReport> run(const std::string& folder) {
    RETURN_IF_ERROR(plan());
    std::vector<SafetensorsWriter::Tensor> tensors;
    for (const Output& output : outputs_) {
      tensors.push_back({output.name, options_.dtype, output.shape});
      total_ += output.shape.count() * element();
    }
    ASSIGN_OR_RETURN(writer_,
                     SafetensorsWriter::create((fs::path(folder) / "model.safetensors").string(),
                                               {{"format", "pt"}}, tensors));
    RETURN_IF_ERROR(
        run_work_list(static_cast<int64_t>(outputs_.size()), options_.jobs,
                      [&](int64_t i) { return write_tensor(outputs_[static_cast<size_t>(i)]); }));
    RETURN_IF_ERROR(write_model_files(base_, options_.text_path, model_, folder));
    RETURN_IF_ERROR(writer_->finish());
    return TuneFolderReport{static_cast<int64_t>(outputs_.size()), total_, weights_, lost_};
  }

 private:
  struct Output {
    std::string name;
    Shape shape;
    bool tuned;
  };

  int64_t element() const { return static_cast<int64_t>(dtype_size(options_.dtype)); }

  Status plan() {
    model_.tied_head = tune_.tied_head();
    model_.dtype = options_.dtype;
    for (const auto& [name, tensor] : base_.tensors()) add(name, tensor.shape);
    if (base_.tensors().count(kHead) == 0) add(kHead, base_.tensors().at(kEmbeddings).shape);
    int64_t head_rows = 0;
    for (const Output& output : outputs_) {
      if (output.name == kEmbeddings) model_.vocab = output.shape[0];
      if (output.name == kHead) head_rows = output.shape[0];
    }
    if (!model_.tied_head && head_rows != model_.vocab)
      return unimplemented(
          fmt::format("{}: it has {} embeddings but a head of {} rows; a model folder needs as "
                      "many of both",
                      tune_.path(), model_.vocab, head_rows));
    std::stable_sort(outputs_.begin(), outputs_.end(), [](const Output& a, const Output& b) {
      return a.shape.count() > b.shape.count();
    });
    return {};
  }

  void add(const std::string& name, const Shape& shape) {
    if (name == kHead && model_.tied_head) return;
    const auto tuned = tune_.tensors().find(name);
    const bool is_tuned = tuned != tune_.tensors().end();
    outputs_.push_back({name, is_tuned ? tuned->second.shape : shape, is_tuned});
  }

  Status write_tensor(const Output& output) {
    const int64_t step = block_rows(output.shape), columns = columns_of(output.shape);
    std::vector<float> values(static_cast<size_t>(step * columns));
    std::vector<uint8_t> out(static_cast<size_t>(step * columns * element()));
    for (int64_t first = 0; first < output.shape[0]; first += step) {
      const int64_t count = std::min(step, output.shape[0] - first), n = count * columns;
      RETURN_IF_ERROR(rows(output, first, count, values.data()));
      for (int64_t i = 0; i < n; ++i)
        if (!std::isfinite(values[static_cast<size_t>(i)]))
          return invalid_argument(fmt::format(
              "{}: tensor '{}': row {} has a value that is not a finite number (or too large)",
              tune_.path(), output.name, first + i / columns));
      if (options_.dtype == DType::kBF16)
        for (int64_t i = 0; i < n; ++i)
          reinterpret_cast<uint16_t*>(out.data())[i] = f32_to_bf16(values[static_cast<size_t>(i)]);
      else
        narrow(DType::kF32, n, values.data(), out.data());
      RETURN_IF_ERROR(
          writer_->write(output.name, first * columns * element(), out.data(), n * element()));
      const int64_t done = done_.fetch_add(n * element()) + n * element();
      if (options_.progress) options_.progress(done, total_);
    }
    return {};
  }

  // values [count, columns], rounded to the type of the output.
  Status rows(const Output& output, int64_t first, int64_t count, float* values) {
    if (output.tuned && !tune_.tensors().at(output.name).as_delta)
      return tune_.value_rows(output.name, first, count, values);
    const int64_t n = count * columns_of(output.shape);
    std::vector<uint16_t> base(static_cast<size_t>(n));
    const std::string source = base_.tensors().count(output.name) != 0 ? output.name : kEmbeddings;
    RETURN_IF_ERROR(base_.read_rows_bf16(source, first, count, base.data()));
    std::vector<double> delta(static_cast<size_t>(output.tuned ? n : 0));
    if (output.tuned) {
      RETURN_IF_ERROR(tune_.delta_rows(output.name, first, count, base.data(), delta.data()));
    }
    int64_t lost = 0;
    for (int64_t i = 0; i < n; ++i) {
      const auto at = static_cast<size_t>(i);
      const double change = output.tuned ? delta[at] : 0.0;
      const double value = static_cast<double>(bf16_to_f32(base[at])) + change;
      if (options_.dtype == DType::kF32) {
        values[i] = static_cast<float>(value);
        continue;
      }
      const uint16_t rounded = f64_to_bf16(value);
      lost += rounded == base[at] && change != 0;
      values[i] = bf16_to_f32(rounded);
    }
    if (output.tuned) weights_ += n;
    lost_ += lost;
    return {};
  }

  const Checkpoint& base_;
  const Tune& tune_;
  const TuneFolderOptions& options_;
  FolderModel model_;
  std::vector<Output> outputs_;
  std::unique_ptr<SafetensorsWriter> writer_;
  int64_t total_ = 0;
  std::atomic<int64_t> done_{0}, weights_{0}, lost_{0};
};

}  // namespace

Result<TuneFolderReport> write_tune_folder(const Checkpoint& base, const Tune& tune,
                                           const std::string& folder,
                                           const TuneFolderOptions& options) {
  std::error_code error;
  const bool made = fs::create_directories(folder, error);
  if (error)
    return internal_error(fmt::format("{}: cannot make the folder: {}", folder, error.message()));
  Result<TuneFolderReport> report = FolderWriter(base, tune, options).run(folder);
  if (!report.ok() && made) fs::remove(folder, error);  // only if it is still empty
  return report;
}

}  // namespace deltad
