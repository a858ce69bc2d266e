#include "merge/monosoup_merge.h"

#include <algorithm>
#include <utility>

#include "merge/svd.h"

namespace deltad {
namespace {

int64_t matrix_bytes(const Shape& shape) { return 4 * shape.count(); }

}  // namespace

MonosoupMerge::MonosoupMerge(const MergeSources& sources, Form form, KeepRules rules, int jobs,
                             MemoryAccount* memory)
    : MergedTune(sources.base(), "merge of " + sources.tune(0).path(), sources.tensors(),
                 sources.tied_head(), &sources.tune(0)),
      sources_(sources),
      form_(form),
      rules_(std::move(rules)),
      jobs_(static_cast<size_t>(jobs)),
      memory_(memory) {
  CHECK(form == Form::kAveraged || sources.count() == 1, "the published form has one source");
}

int64_t MonosoupMerge::bytes_for(const Shape& matrix, Form form) {
  const int64_t held = form == Form::kAveraged ? 2 : 1;  // the sum, and Δ
  return held * matrix_bytes(matrix) + monosoup_bytes(matrix[0], matrix[1]);
}

std::vector<MonosoupReport> MonosoupMerge::reports() const {
  MutexLock lock(mutex_);
  std::vector<MonosoupReport> out;
  for (const auto& [place, figures] : figures_) out.push_back({place.first, place.second, figures});
  return out;
}

Status MonosoupMerge::merged_rows(const std::string& name, int64_t first, int64_t count,
                                  double* delta) const {
  const TunedTensor& tensor = tensors().at(name);
  const int64_t columns = columns_of(tensor.shape), n = count * columns;
  if (tensor.as_delta) {
    ASSIGN_OR_RETURN(const std::shared_ptr<const Held> held, matrix(name));
    std::copy_n(held->delta.row(first), n, delta);
    return {};
  }
  // Tensors that are no linear layer: as they are, or their mean.
  std::fill(delta, delta + n, 0.0);
  std::vector<double> one(static_cast<size_t>(n));
  for (size_t s = 0; s < sources_.count(); ++s) {
    RETURN_IF_ERROR(sources_.delta_rows(s, name, first, count, one.data()));
    for (int64_t i = 0; i < n; ++i)
      delta[i] += one[static_cast<size_t>(i)] / static_cast<double>(sources_.count());
  }
  return {};
}

// A writer stays with a tensor until it is done, so as many as there are threads are enough.
Result<std::shared_ptr<const MonosoupMerge::Held>> MonosoupMerge::matrix(
    const std::string& name) const {
  {
    MutexLock lock(mutex_);
    for (const auto& [held, matrix] : held_)
      if (held == name) return matrix;
    if (held_.size() >= jobs_) held_.pop_front();
  }
  ASSIGN_OR_RETURN(const std::shared_ptr<const Held> matrix, compute(name));
  MutexLock lock(mutex_);
  held_.emplace_back(name, matrix);
  return matrix;
}

Result<std::shared_ptr<const MonosoupMerge::Held>> MonosoupMerge::compute(
    const std::string& name) const {
  const Shape& shape = tensors().at(name).shape;
  const KeepRule& rule = rules_.of(kind_of_weight(name));
  const MemoryAccount::Charge work(*memory_, monosoup_bytes(shape[0], shape[1]));
  const auto keep = [&](size_t source, const MonosoupFigures& figures) {
    MutexLock lock(mutex_);
    figures_[{name, source}] = figures;
  };
  auto held = std::shared_ptr<Held>(new Held{Matrix(), {*memory_, matrix_bytes(shape)}});
  if (form_ == Form::kPublished) {
    ASSIGN_OR_RETURN(held->delta, sources_.delta(0, name));
    ASSIGN_OR_RETURN(const double base_norm, sources_.base_norm(name));
    auto figures = monosoup(rule, base_norm, &held->delta);
    if (!figures.ok()) return figures.status().in(name);
    keep(0, *figures);
    return std::shared_ptr<const Held>(held);
  }
  held->delta = Matrix(shape[0], shape[1]);
  const double factor = 1 / static_cast<double>(sources_.count());
  const MemoryAccount::Charge one(*memory_, matrix_bytes(shape));
  for (size_t s = 0; s < sources_.count(); ++s) {
    if (!sources_.changes(s, name)) continue;
    ASSIGN_OR_RETURN(const Matrix delta, sources_.delta(s, name));
    auto figures = add_truncated(rule, delta, factor, &held->delta);
    if (!figures.ok()) return figures.status().in(name);
    keep(s, *figures);
  }
  return std::shared_ptr<const Held>(held);
}

}  // namespace deltad
