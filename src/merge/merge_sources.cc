#include "merge/merge_sources.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "delta/digest.h"
#include "delta/sign_rows.h"
#include "delta/work_list.h"
#include "tensor/float16.h"

namespace deltad {
namespace {

constexpr const char* kEmbeddings = "model.embed_tokens.weight";
constexpr const char* kHead = "lm_head.weight";

}  // namespace

std::string kind_of_weight(const std::string& name) {
  const std::string module = name.substr(0, name.rfind('.'));
  return module.substr(module.rfind('.') + 1);
}

Result<MergeSources> MergeSources::open(const Checkpoint& base,
                                        const std::vector<std::string>& paths, int jobs) {
  MergeSources sources;
  sources.base_ = &base;
  for (const std::string& path : paths) {
    ASSIGN_OR_RETURN(std::unique_ptr<Tune> tune, open_tune(base, path));
    sources.tunes_.push_back(std::move(tune));
    const Tune& added = *sources.tunes_.back();
    std::vector<std::string> names;
    for (const auto& [name, tensor] : added.tensors()) names.push_back(name);
    std::vector<char> differs(names.size());
    RETURN_IF_ERROR(
        run_work_list(static_cast<int64_t>(names.size()), jobs, [&](int64_t i) -> Status {
          const auto at = static_cast<size_t>(i);
          ASSIGN_OR_RETURN(differs[at], added.differs(names[at]));
          return {};
        }));
    std::map<std::string, bool>& changed = sources.changed_.emplace_back();
    for (size_t i = 0; i < names.size(); ++i)
      if (differs[i]) changed[names[i]] = true;
  }
  RETURN_IF_ERROR(sources.check_fit());
  return sources;
}

Status MergeSources::check_fit() {
  tied_head_ = base_->config().tied_head;
  size_t decided_by = count();
  for (size_t s = 0; s < count(); ++s) {
    const Tune& tune = *tunes_[s];
    for (const auto& [name, changed] : changed_[s]) {
      const TunedTensor& tensor = tune.tensors().at(name);
      const auto in_base = base_->tensors().find(name);
      const Shape& expected =
          (in_base != base_->tensors().end() ? in_base : base_->tensors().find(kEmbeddings))
              ->second.shape;
      if (!(tensor.shape == expected))
        return unimplemented(fmt::format(
            "{}: tensor '{}': its shape is {}, the base's is {}; only fine-tunes with the base's "
            "vocabulary can be merged",
            tune.path(), name, tensor.shape.str(), expected.str()));
      TunedTensor merged = tensor;
      if (merged.type != DType::kBF16) merged.type = DType::kF32;
      const auto [at, is_new] = tensors_.emplace(name, merged);
      if (!is_new && merged.type == DType::kF32) at->second.type = DType::kF32;
    }
    // Whether the head follows the embeddings matters where they change.
    if (changed_[s].count(kEmbeddings) == 0) continue;
    if (decided_by != count() && tied_head_ != tune.tied_head())
      return unimplemented(fmt::format("{} has {} head and {} {}; they cannot be merged",
                                       tune.path(), tune.tied_head() ? "a tied" : "its own",
                                       tunes_[decided_by]->path(),
                                       tied_head_ ? "a tied one" : "its own"));
    tied_head_ = tune.tied_head();
    decided_by = s;
  }
  if (tensors_.count(kHead) != 0 && decided_by == count()) tied_head_ = false;
  const bool new_tie = tied_head_ && !base_->config().tied_head && count() > 1;
  if (new_tie || (tied_head_ && tensors_.count(kHead) != 0))
    return unimplemented(fmt::format(
        "{} has a tied head and another source (or the base) its own; they cannot be merged",
        tunes_[decided_by]->path()));
  if (tensors_.empty())
    return invalid_argument(fmt::format("{}{}: no tensor differs from the base {}",
                                        tunes_[0]->path(), count() > 1 ? " and the others" : "",
                                        base_->path()));
  return {};
}

Status base_rows(const Checkpoint& base, const std::string& name, int64_t first, int64_t count,
                 uint16_t* values) {
  const std::string source = base.tensors().count(name) != 0 ? name : kEmbeddings;
  return base.read_rows_bf16(source, first, count, values);
}

Status MergeSources::delta_rows(size_t source, const std::string& name, int64_t first,
                                int64_t count, double* delta) const {
  const Tune& tune = *tunes_[source];
  const int64_t columns = columns_of(tensors_.at(name).shape), n = count * columns;
  if (!changes(source, name)) {
    std::fill(delta, delta + n, 0.0);
    return {};
  }
  std::vector<uint16_t> base(static_cast<size_t>(n));
  RETURN_IF_ERROR(base_rows(*base_, name, first, count, base.data()));
  if (tune.tensors().at(name).as_delta) {
    RETURN_IF_ERROR(tune.delta_rows(name, first, count, base.data(), delta));
  } else {
    std::vector<float> values(static_cast<size_t>(n));
    RETURN_IF_ERROR(tune.value_rows(name, first, count, values.data()));
    for (int64_t i = 0; i < n; ++i) {
      const auto at = static_cast<size_t>(i);
      delta[i] = static_cast<double>(values[at]) - static_cast<double>(bf16_to_f32(base[at]));
    }
  }
  for (int64_t i = 0; i < n; ++i)
    if (!std::isfinite(static_cast<float>(delta[i])))
      return invalid_argument(fmt::format(
          "{}: tensor '{}': row {} has a value that is not a finite number (or too large)",
          tune.path(), name, first + i / columns));
  return {};
}

Result<Matrix> MergeSources::delta(size_t source, const std::string& name) const {
  const Shape& shape = tensors_.at(name).shape;
  Matrix out(shape[0], columns_of(shape));
  const int64_t step = block_rows(shape);
  std::vector<double> block(static_cast<size_t>(step * out.columns));
  for (int64_t first = 0; first < out.rows; first += step) {
    const int64_t count = std::min(step, out.rows - first);
    RETURN_IF_ERROR(delta_rows(source, name, first, count, block.data()));
    for (int64_t i = 0; i < count * out.columns; ++i)
      out.row(first)[i] = static_cast<float>(block[static_cast<size_t>(i)]);
  }
  return out;
}

Result<double> MergeSources::base_norm(const std::string& name) const {
  const Shape& shape = tensors_.at(name).shape;
  const int64_t step = block_rows(shape), columns = columns_of(shape);
  std::vector<uint16_t> block(static_cast<size_t>(step * columns));
  double sum = 0;
  for (int64_t first = 0; first < shape[0]; first += step) {
    const int64_t count = std::min(step, shape[0] - first);
    RETURN_IF_ERROR(base_rows(*base_, name, first, count, block.data()));
    sum += bf16_squares(block.data(), count * columns);
  }
  return std::sqrt(sum);
}

Result<std::string> MergeSources::identity(size_t source) const {
  std::map<std::string, HashedTensor> hashes;
  for (const auto& [name, tensor] : tensors_) {
    const int64_t columns = columns_of(tensor.shape);
    std::vector<double> row(static_cast<size_t>(columns));
    RETURN_IF_ERROR(delta_rows(source, name, 0, 1, row.data()));
    if (!changes(source, name)) continue;
    TensorHasher hasher;
    hasher.update(row.data(), columns * static_cast<int64_t>(sizeof(double)));
    hashes.emplace(name, HashedTensor{DType::kF32, tensor.shape, hasher.finish()});
  }
  return variant_digest(hashes);
}

}  // namespace deltad
