#include "merge/lora_folder.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "base/mutex.h"
#include "delta/float_codec.h"
#include "delta/work_list.h"
#include "io/safetensors.h"
#include "merge/low_rank.h"
#include "merge/merge_sources.h"
#include "tensor/float16.h"

namespace deltad {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
constexpr int64_t kExactSide = 1024;

std::string module_of(const std::string& weight) { return weight.substr(0, weight.rfind('.')); }
std::string tensor_name(const std::string& weight, const char* end) {
  return "base_model.model." + module_of(weight) + end;
}

bool is_randomized(const Shape& matrix, const LoraFolderOptions& options) {
  const int64_t side = std::min(matrix[0], matrix[1]);
  const bool is_large =
      side > kExactSide && side > 4 * (options.rank + RandomizedSvdOptions().oversampling);
  return options.svd == SvdChoice::kRandomized || (options.svd == SvdChoice::kAuto && is_large);
}

class LoraWriter {
 public:
  LoraWriter(const Checkpoint& base, const Tune& tune, const LoraFolderOptions& options)
      : base_(base), tune_(tune), options_(options) {}

  Result<std::vector<LoraReport>> run(const std::string& folder) {
    RETURN_IF_ERROR(create(folder));
    RETURN_IF_ERROR(
        run_work_list(static_cast<int64_t>(names_.size()), options_.jobs, [&](int64_t i) {
          const std::string& name = names_[static_cast<size_t>(i)];
          return tune_.tensors().at(name).as_delta ? write_factors(name) : write_whole(name);
        }));
    RETURN_IF_ERROR(write_file((fs::path(folder) / "adapter_config.json").string(), config_json()));
    RETURN_IF_ERROR(writer_->finish());
    MutexLock lock(mutex_);
    std::sort(reports_.begin(), reports_.end(),
              [](const LoraReport& a, const LoraReport& b) { return a.name < b.name; });
    return std::move(reports_);
  }

 private:
  Status create(const std::string& folder) {
    std::vector<SafetensorsWriter::Tensor> tensors;
    for (const auto& [name, tensor] : tune_.tensors()) {
      ASSIGN_OR_RETURN(const bool differs, tune_.differs(name));
      if (!differs) continue;
      names_.push_back(name);
      total_ += tensor.shape.count();
      if (tensor.as_delta) {
        tensors.push_back({tensor_name(name, ".lora_A.weight"), options_.dtype,
                           Shape{options_.rank, tensor.shape[1]}});
        tensors.push_back({tensor_name(name, ".lora_B.weight"), options_.dtype,
                           Shape{tensor.shape[0], options_.rank}});
      } else {
        tensors.push_back({tensor_name(name, ".weight"), tensor.type, tensor.shape});
      }
    }
    if (names_.empty())
      return invalid_argument(
          fmt::format("{}: no tensor differs from the base {}", tune_.path(), base_.path()));
    std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
      const size_t wide_a = dtype_size(a.dtype), wide_b = dtype_size(b.dtype);
      return wide_a != wide_b ? wide_a > wide_b : a.name < b.name;
    });
    std::stable_sort(names_.begin(), names_.end(), [&](const auto& a, const auto& b) {
      return tune_.tensors().at(a).shape.count() > tune_.tensors().at(b).shape.count();
    });
    ASSIGN_OR_RETURN(writer_, SafetensorsWriter::create(
                                  (fs::path(folder) / "adapter_model.safetensors").string(),
                                  {{"format", "pt"}}, tensors));
    return {};
  }

  std::string config_json() const {
    // A kind stands for all its layers; where only some have it, they are named one by one.
    std::map<std::string, int64_t> layers;
    Json modules = Json::array(), saved = Json::array();
    for (const std::string& name : names_)
      if (tune_.tensors().at(name).as_delta) ++layers[kind_of_weight(name)];
    for (const auto& [kind, count] : layers)
      if (count == base_.config().layers) modules.push_back(kind);
    for (const auto& [name, tensor] : tune_.tensors()) {
      if (std::find(names_.begin(), names_.end(), name) == names_.end()) continue;
      if (!tensor.as_delta)
        saved.push_back(module_of(name));
      else if (layers.at(kind_of_weight(name)) != base_.config().layers)
        modules.push_back(module_of(name));
    }
    Json config = {{"peft_type", "LORA"},
                   {"task_type", "CAUSAL_LM"},
                   {"base_model_name_or_path", options_.base_name},
                   {"inference_mode", true},
                   {"r", options_.rank},
                   {"lora_alpha", options_.rank},
                   {"lora_dropout", 0.0},
                   {"bias", "none"},
                   {"fan_in_fan_out", false},
                   {"init_lora_weights", true},
                   {"target_modules", modules}};
    if (!saved.empty()) config["modules_to_save"] = saved;
    if (base_.config().tied_head && tune_.tied_head() &&
        std::find(names_.begin(), names_.end(), "model.embed_tokens.weight") != names_.end())
      config["ensure_weight_tying"] = true;
    return config.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  }

  Status not_finite(const std::string& name, int64_t row) const {
    return invalid_argument(fmt::format(
        "{}: tensor '{}': row {} has a value that is not a finite number (or too large)",
        tune_.path(), name, row));
  }

  Result<Matrix> read_delta(const std::string& name) const {
    const Shape& shape = tune_.tensors().at(name).shape;
    Matrix out(shape[0], shape[1]);
    const int64_t step = block_rows(shape);
    std::vector<uint16_t> base(static_cast<size_t>(step * shape[1]));
    std::vector<double> block(base.size());
    for (int64_t first = 0; first < shape[0]; first += step) {
      const int64_t count = std::min(step, shape[0] - first);
      RETURN_IF_ERROR(base_rows(base_, name, first, count, base.data()));
      RETURN_IF_ERROR(tune_.delta_rows(name, first, count, base.data(), block.data()));
      for (int64_t i = 0; i < count * shape[1]; ++i) {
        const auto value = static_cast<float>(block[static_cast<size_t>(i)]);
        if (!std::isfinite(value)) return not_finite(name, first + i / shape[1]);
        out.row(first)[i] = value;
      }
    }
    return out;
  }

  Status write_factors(const std::string& name) {
    const Shape& shape = tune_.tensors().at(name).shape;
    const MemoryAccount::Charge charge(*options_.memory, lora_bytes_for(shape, options_));
    ASSIGN_OR_RETURN(const Matrix delta, read_delta(name));
    const double all = squares(delta);
    LoraReport report;
    report.name = name;
    report.randomized = is_randomized(shape, options_);
    auto svd = report.randomized ? randomized_svd(delta, options_.rank, {}) : exact_svd(delta);
    if (!svd.ok()) return svd.status().in(name);
    for (size_t i = 0; i < std::min(svd->sigma.size(), static_cast<size_t>(options_.rank)); ++i)
      report.rank += svd->sigma[i] > 1e-6f * svd->sigma[0];
    const Truncated best = factors_of(std::move(*svd), options_.rank, all);
    report.kept_energy = best.kept_energy;
    report.error = std::sqrt(1 - best.kept_energy);
    Matrix a(options_.rank, shape[1]), b(shape[0], options_.rank);
    const int64_t found = best.factors.a.rows;
    std::copy(best.factors.a.values.begin(), best.factors.a.values.end(), a.values.begin());
    for (int64_t r = 0; r < shape[0]; ++r) std::copy_n(best.factors.b.row(r), found, b.row(r));
    RETURN_IF_ERROR(write(tensor_name(name, ".lora_A.weight"), a));
    RETURN_IF_ERROR(write(tensor_name(name, ".lora_B.weight"), b));
    MutexLock lock(mutex_);
    reports_.push_back(report);
    count(shape.count());
    return {};
  }

  Status write(const std::string& name, const Matrix& values) {
    const auto n = static_cast<int64_t>(values.values.size());
    if (options_.dtype == DType::kF32) return writer_->write(name, 0, values.values.data(), 4 * n);
    std::vector<uint16_t> rounded(values.values.size());
    std::transform(values.values.begin(), values.values.end(), rounded.begin(), f32_to_bf16);
    return writer_->write(name, 0, rounded.data(), 2 * n);
  }

  Status write_whole(const std::string& name) {
    const TunedTensor& tensor = tune_.tensors().at(name);
    const int64_t step = block_rows(tensor.shape), columns = columns_of(tensor.shape);
    const auto element = static_cast<int64_t>(dtype_size(tensor.type));
    std::vector<float> values(static_cast<size_t>(step * columns));
    std::vector<uint8_t> bytes(static_cast<size_t>(step * columns * element));
    for (int64_t first = 0; first < tensor.shape[0]; first += step) {
      const int64_t rows = std::min(step, tensor.shape[0] - first), n = rows * columns;
      RETURN_IF_ERROR(tune_.value_rows(name, first, rows, values.data()));
      for (int64_t i = 0; i < n; ++i)
        if (!std::isfinite(values[static_cast<size_t>(i)]))
          return not_finite(name, first + i / columns);
      narrow(tensor.type, n, values.data(), bytes.data());
      RETURN_IF_ERROR(writer_->write(tensor_name(name, ".weight"), first * columns * element,
                                     bytes.data(), n * element));
      MutexLock lock(mutex_);
      count(n);
    }
    return {};
  }

  void count(int64_t weights) REQUIRES(mutex_) {
    done_ += weights;
    if (options_.progress) options_.progress(done_, total_);
  }

  const Checkpoint& base_;
  const Tune& tune_;
  const LoraFolderOptions& options_;
  std::vector<std::string> names_;  // that differ, the largest first
  std::unique_ptr<SafetensorsWriter> writer_;
  int64_t total_ = 0;
  Mutex mutex_;
  int64_t done_ GUARDED_BY(mutex_) = 0;
  std::vector<LoraReport> reports_ GUARDED_BY(mutex_);
};

}  // namespace

int64_t lora_bytes_for(const Shape& matrix, const LoraFolderOptions& options) {
  const int64_t m = matrix[0], n = matrix[1];
  const int64_t svd = is_randomized(matrix, options) ? randomized_svd_bytes(m, n, options.rank, {})
                                                     : exact_svd_bytes(m, n);
  return 4 * (m * n + 2 * (m + n) * options.rank) + svd;
}

Result<std::vector<LoraReport>> write_lora_folder(const Checkpoint& base, const Tune& tune,
                                                  const std::string& folder,
                                                  const LoraFolderOptions& options) {
  std::error_code error;
  const bool made = fs::create_directories(folder, error);
  if (error)
    return internal_error(fmt::format("{}: cannot make the folder: {}", folder, error.message()));
  auto reports = LoraWriter(base, tune, options).run(folder);
  if (!reports.ok() && made) fs::remove(folder, error);  // only if it is still empty
  return reports;
}

}  // namespace deltad
