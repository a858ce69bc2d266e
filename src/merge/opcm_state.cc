#include "merge/opcm_state.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/mutex.h"
#include "delta/work_list.h"

namespace deltad {
namespace {

using Json = nlohmann::ordered_json;

// Metadata that is known last is written over a placeholder of the same length.
std::string fixed(double value) { return fmt::format("{:<26}", fmt::format("{:.17e}", value)); }

class Step {
 public:
  Step(const OpcmState* before, const MergeSources& sources, size_t source,
       const OpcmOptions& options)
      : before_(before), sources_(sources), source_(source), options_(options) {}

  Result<std::vector<OpcmReport>> run(const std::string& path) {
    RETURN_IF_ERROR(create(path));
    std::vector<std::string> names;
    for (const auto& [name, shape] : shapes_) names.push_back(name);
    std::stable_sort(names.begin(), names.end(), [&](const auto& a, const auto& b) {
      return shapes_.at(a).count() > shapes_.at(b).count();
    });
    RETURN_IF_ERROR(
        run_work_list(static_cast<int64_t>(names.size()), options_.jobs, [&](int64_t i) -> Status {
          const std::string& name = names[static_cast<size_t>(i)];
          const bool project = before_ != nullptr && is_block_matrix(name) &&
                               sources_.changes(source_, name) &&
                               before_->file().find(name) != nullptr;
          return project ? project_matrix(name) : add_rows(name);
        }));
    MutexLock lock(mutex_);
    const double norm_sum =
        (before_ != nullptr ? before_->norm_sum() : 0) + std::sqrt(tau_squares_);
    const double steps = before_ != nullptr ? static_cast<double>(before_->merged().size()) + 1 : 1;
    const double lambda = merged_squares_ > 0 ? std::sqrt(merged_squares_) / (norm_sum / steps) : 1;
    RETURN_IF_ERROR(writer_->set_metadata("lambda", fixed(before_ != nullptr ? lambda : 1)));
    RETURN_IF_ERROR(writer_->set_metadata("norm_sum", fixed(norm_sum)));
    RETURN_IF_ERROR(writer_->finish());
    std::sort(reports_.begin(), reports_.end(),
              [](const OpcmReport& a, const OpcmReport& b) { return a.name < b.name; });
    return std::move(reports_);
  }

 private:
  Status create(const std::string& path) {
    if (before_ != nullptr)
      for (const auto& [name, entry] : before_->file().tensors()) shapes_[name] = entry.shape;
    for (const auto& [name, tensor] : sources_.tensors())
      if (sources_.changes(source_, name)) shapes_[name] = tensor.shape;
    std::vector<SafetensorsWriter::Tensor> tensors;
    for (const auto& [name, shape] : shapes_) {
      tensors.push_back({name, DType::kF32, shape});
      total_ += shape.count();
    }
    Json merged = Json::array();
    if (before_ != nullptr)
      for (const OpcmState::Merged& one : before_->merged())
        merged.push_back({{"path", one.path}, {"identity", one.identity}});
    ASSIGN_OR_RETURN(const std::string identity, sources_.identity(source_));
    merged.push_back({{"path", sources_.tune(source_).path()}, {"identity", identity}});
    ASSIGN_OR_RETURN(const std::string digest, base_digest(sources_.base()));
    ASSIGN_OR_RETURN(writer_,
                     SafetensorsWriter::create(
                         path,
                         {{"format", "deltad.opcm"},
                          {"version", "1"},
                          {"base_digest", digest},
                          {"share", fmt::format("{}", options_.share)},
                          {"tied_head", sources_.tied_head() ? "true" : "false"},
                          {"merged", merged.dump(-1, ' ', false, Json::error_handler_t::replace)},
                          {"lambda", fixed(1)},
                          {"norm_sum", fixed(0)}},
                         tensors));
    return {};
  }

  Status project_matrix(const std::string& name) {
    const Shape& shape = shapes_.at(name);
    const MemoryAccount::Charge charge(*options_.memory, opcm_bytes_for(shape));
    Matrix merged(shape[0], shape[1]);
    RETURN_IF_ERROR(before_->rows(name, 0, shape[0], shape[1], merged.values.data()));
    ASSIGN_OR_RETURN(const Matrix tau, sources_.delta(source_, name));
    auto figures = add_projected(tau, options_.share, &merged);
    if (!figures.ok()) return figures.status().in(name);
    RETURN_IF_ERROR(writer_->write(name, 0, merged.values.data(), 4 * shape.count()));
    MutexLock lock(mutex_);
    reports_.push_back({name, *figures});
    count(squares(tau), squares(merged), shape.count());
    return {};
  }

  // Vectors, embeddings, and matrices on which nothing lies yet: U + τ.
  Status add_rows(const std::string& name) {
    const Shape& shape = shapes_.at(name);
    const int64_t step = block_rows(shape), columns = columns_of(shape);
    std::vector<float> merged(static_cast<size_t>(step * columns));
    std::vector<double> tau(merged.size());
    for (int64_t first = 0; first < shape[0]; first += step) {
      const int64_t rows = std::min(step, shape[0] - first), n = rows * columns;
      std::fill(merged.begin(), merged.end(), 0.0f);
      std::fill(tau.begin(), tau.end(), 0.0);
      if (before_ != nullptr) {
        RETURN_IF_ERROR(before_->rows(name, first, rows, columns, merged.data()));
      }
      if (sources_.changes(source_, name)) {
        RETURN_IF_ERROR(sources_.delta_rows(source_, name, first, rows, tau.data()));
      }
      double tau_sum = 0, merged_sum = 0;
      for (int64_t i = 0; i < n; ++i) {
        const auto at = static_cast<size_t>(i);
        tau_sum += tau[at] * tau[at];
        merged[at] += static_cast<float>(tau[at]);
        merged_sum += static_cast<double>(merged[at]) * static_cast<double>(merged[at]);
      }
      RETURN_IF_ERROR(writer_->write(name, 4 * first * columns, merged.data(), 4 * n));
      MutexLock lock(mutex_);
      count(tau_sum, merged_sum, n);
    }
    return {};
  }

  void count(double tau, double merged, int64_t weights) REQUIRES(mutex_) {
    tau_squares_ += tau;
    merged_squares_ += merged;
    done_ += weights;
    if (options_.progress) options_.progress(done_, total_);
  }

  const OpcmState* const before_;
  const MergeSources& sources_;
  const size_t source_;
  const OpcmOptions& options_;
  std::map<std::string, Shape> shapes_;
  std::unique_ptr<SafetensorsWriter> writer_;
  int64_t total_ = 0;
  Mutex mutex_;
  double tau_squares_ GUARDED_BY(mutex_) = 0, merged_squares_ GUARDED_BY(mutex_) = 0;
  int64_t done_ GUARDED_BY(mutex_) = 0;
  std::vector<OpcmReport> reports_ GUARDED_BY(mutex_);
};

std::map<std::string, TunedTensor> tensors_of(const OpcmState& state) {
  std::map<std::string, TunedTensor> tensors;
  for (const auto& [name, entry] : state.file().tensors())
    tensors[name] = {entry.shape, is_block_matrix(name), DType::kBF16};
  return tensors;
}

}  // namespace

Result<OpcmState> OpcmState::open(const std::string& path) {
  OpcmState state;
  if (!file_exists(path)) return not_found(fmt::format("{}: no such state file", path));
  ASSIGN_OR_RETURN(state.file_, SafetensorsFile::open(path));
  const auto& metadata = state.file_.metadata();
  const auto value = [&](const char* key) {
    const auto it = metadata.find(key);
    return it == metadata.end() ? std::string() : it->second;
  };
  const auto bad = [&](const char* key, const char* expected) {
    return invalid_argument(fmt::format("{}: metadata '{}' is '{}', expected {}", path, key,
                                        value(key).substr(0, 100), expected));
  };
  if (value("format") != "deltad.opcm") return bad("format", "'deltad.opcm': not an OPCM state");
  if (value("version") != "1") return bad("version", "'1', the only one that is supported");
  for (const auto& [name, entry] : state.file_.tensors())
    if (entry.dtype != DType::kF32)
      return invalid_argument(fmt::format("{}: tensor '{}': its type is {}, expected F32", path,
                                          name, dtype_name(entry.dtype)));
  state.base_digest_ = value("base_digest");
  state.tied_head_ = value("tied_head") == "true";
  for (const auto& [key, number] :
       {std::pair{"lambda", &state.lambda_}, std::pair{"norm_sum", &state.norm_sum_},
        std::pair{"share", &state.share_}}) {
    char* end = nullptr;
    const std::string text = value(key);
    *number = std::strtod(text.c_str(), &end);
    if (end == text.c_str() || !std::isfinite(*number) || *number <= 0)
      return bad(key, "a positive number");
  }
  const Json merged = Json::parse(value("merged"), nullptr, false);
  if (!merged.is_array() || merged.empty()) return bad("merged", "a list");
  for (const Json& one : merged) {
    if (!one.is_object() || !one.value("path", Json()).is_string() ||
        !one.value("identity", Json()).is_string())
      return bad("merged", "a list of {path, identity}");
    state.merged_.push_back({one["path"], one["identity"]});
  }
  return state;
}

Status OpcmState::rows(const std::string& name, int64_t first, int64_t count, int64_t columns,
                       float* values) const {
  const SafetensorsEntry* entry = file_.find(name);
  if (entry == nullptr) {
    std::fill(values, values + count * columns, 0.0f);
    return {};
  }
  RETURN_IF_ERROR(file_.read(*entry, 4 * first * columns, 4 * count * columns, values));
  for (int64_t i = 0; i < count * columns; ++i)
    if (!std::isfinite(values[i]))
      return invalid_argument(fmt::format("{}: tensor '{}': row {} has a value that is not finite",
                                          path(), name, first + i / columns));
  return {};
}

Status OpcmState::check(const MergeSources& sources, double share) const {
  ASSIGN_OR_RETURN(const std::string digest, deltad::base_digest(sources.base()));
  if (base_digest_ != digest)
    return invalid_argument(
        fmt::format("{}: it was begun with another base (digest {}, this is {})", path(),
                    base_digest_, digest));
  if (share_ != share)
    return invalid_argument(
        fmt::format("{}: it was begun with a share of {}, not {}", path(), share_, share));
  if (tied_head_ != sources.tied_head())
    return unimplemented(fmt::format("{}: {} head, and the sources {}; they cannot be merged",
                                     path(), tied_head_ ? "it has a tied" : "it has its own",
                                     tied_head_ ? "their own" : "a tied one"));
  for (const auto& [name, tensor] : sources.tensors()) {
    const SafetensorsEntry* entry = file_.find(name);
    if (entry != nullptr && !(entry->shape == tensor.shape))
      return invalid_argument(fmt::format("{}: tensor '{}': its shape is {}, expected {}", path(),
                                          name, entry->shape.str(), tensor.shape.str()));
  }
  return {};
}

int64_t opcm_bytes_for(const Shape& matrix) {
  return 2 * 4 * matrix.count() + add_projected_bytes(matrix[0], matrix[1]);
}

Result<std::vector<OpcmReport>> opcm_step(const OpcmState* before, const MergeSources& sources,
                                          size_t source, const OpcmOptions& options,
                                          const std::string& path) {
  if (before != nullptr) RETURN_IF_ERROR(before->check(sources, options.share));
  return Step(before, sources, source, options).run(path);
}

OpcmMerge::OpcmMerge(const Checkpoint& base, const OpcmState& state, const Tune* text)
    : MergedTune(base, "merge in " + state.path(), tensors_of(state), state.tied_head(), text),
      state_(state) {}

Status OpcmMerge::merged_rows(const std::string& name, int64_t first, int64_t count,
                              double* delta) const {
  const int64_t columns = columns_of(tensors().at(name).shape), n = count * columns;
  std::vector<float> values(static_cast<size_t>(n));
  RETURN_IF_ERROR(state_.rows(name, first, count, columns, values.data()));
  for (int64_t i = 0; i < n; ++i)
    delta[i] = static_cast<double>(values[static_cast<size_t>(i)]) / state_.lambda();
  return {};
}

}  // namespace deltad
