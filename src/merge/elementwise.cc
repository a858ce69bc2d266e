#include "merge/elementwise.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "merge/mix.h"

namespace deltad {
namespace {

uint32_t magnitude_bits(double value) {
  return std::bit_cast<uint32_t>(static_cast<float>(value)) & 0x7fffffffu;
}

}  // namespace

uint64_t dare_stream(uint64_t seed, size_t source, const std::string& tensor) {
  uint64_t name = 0xcbf29ce484222325u;  // FNV-1a
  for (const char c : tensor) name = (name ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  return mix(mix(seed, source), name);
}

bool dare_keeps(uint64_t stream, int64_t index, double drop) {
  return unit_interval(mix(stream, static_cast<uint64_t>(index))) >= drop;
}

ElementwiseMerge::ElementwiseMerge(const MergeSources& sources, ElementwiseOptions options)
    : MergedTune(sources.base(), "merge of " + sources.tune(0).path(), sources.tensors(),
                 sources.tied_head(), &sources.tune(0)),
      sources_(sources),
      options_(std::move(options)) {
  CHECK(options_.weights.size() == sources.count(), "as many weights as sources");
}

Status ElementwiseMerge::merged_rows(const std::string& name, int64_t first, int64_t count,
                                     double* delta) const {
  using Method = ElementwiseOptions::Method;
  if (options_.method == Method::kTies) return ties_rows(name, first, count, delta);
  const int64_t columns = columns_of(tensors().at(name).shape), n = count * columns;
  double factor = options_.lambda;
  if (options_.method == Method::kSoup) {
    double sum = 0;
    for (const double w : options_.weights) sum += w;
    factor = 1 / sum;
  }
  if (options_.method == Method::kDare) factor /= 1 - options_.drop;
  std::fill(delta, delta + n, 0.0);
  std::vector<double> one(static_cast<size_t>(n));
  for (size_t s = 0; s < sources_.count(); ++s) {
    if (!sources_.changes(s, name)) continue;
    RETURN_IF_ERROR(sources_.delta_rows(s, name, first, count, one.data()));
    const double w = factor * options_.weights[s];
    if (options_.method == Method::kDare) {
      const uint64_t stream = dare_stream(options_.seed, s, name);
      for (int64_t i = 0; i < n; ++i)
        if (dare_keeps(stream, first * columns + i, options_.drop))
          delta[i] += w * one[static_cast<size_t>(i)];
    } else {
      for (int64_t i = 0; i < n; ++i) delta[i] += w * one[static_cast<size_t>(i)];
    }
  }
  return {};
}

Status ElementwiseMerge::ties_rows(const std::string& name, int64_t first, int64_t count,
                                   double* delta) const {
  const int64_t n = count * columns_of(tensors().at(name).shape);
  ASSIGN_OR_RETURN(const std::shared_ptr<const Thresholds> limits, thresholds(name));
  std::vector<std::vector<double>> trimmed(sources_.count(),
                                           std::vector<double>(static_cast<size_t>(n)));
  for (size_t s = 0; s < sources_.count(); ++s) {
    RETURN_IF_ERROR(sources_.delta_rows(s, name, first, count, trimmed[s].data()));
    for (double& value : trimmed[s])
      if (std::abs(static_cast<float>(value)) < (*limits)[s]) value = 0;
  }
  for (int64_t i = 0; i < n; ++i) {
    const auto at = static_cast<size_t>(i);
    double sum = 0, agreeing = 0, weight = 0;
    for (size_t s = 0; s < trimmed.size(); ++s) sum += options_.weights[s] * trimmed[s][at];
    for (size_t s = 0; s < trimmed.size(); ++s) {
      if (trimmed[s][at] * sum <= 0) continue;
      agreeing += options_.weights[s] * trimmed[s][at];
      weight += options_.weights[s];
    }
    delta[i] = weight > 0 ? options_.lambda * agreeing / weight : 0;
  }
  return {};
}

Result<std::shared_ptr<const ElementwiseMerge::Thresholds>> ElementwiseMerge::thresholds(
    const std::string& name) const {
  {
    MutexLock lock(mutex_);
    const auto known = thresholds_.find(name);
    if (known != thresholds_.end()) return known->second;
  }
  auto limits = std::make_shared<Thresholds>();
  for (size_t s = 0; s < sources_.count(); ++s) {
    ASSIGN_OR_RETURN(const float limit, threshold(s, name));
    limits->push_back(limit);
  }
  MutexLock lock(mutex_);
  thresholds_[name] = limits;
  return std::shared_ptr<const Thresholds>(limits);
}

// The size of the k-th largest entry, found in two passes over the tensor: the sizes of floats are
// ordered as their bits are, so the first counts the upper halves of the bits, the second the lower
// halves below the upper half that was found.
Result<float> ElementwiseMerge::threshold(size_t source, const std::string& name) const {
  if (!sources_.changes(source, name)) return 0.0f;
  const Shape& shape = tensors().at(name).shape;
  const int64_t step = block_rows(shape), columns = columns_of(shape);
  int64_t rank =
      std::max<int64_t>(1, std::llround(options_.density * static_cast<double>(shape.count())));
  std::vector<double> block(static_cast<size_t>(step * columns));
  uint32_t found = 0;
  for (const int pass : {0, 1}) {
    std::vector<int64_t> counts(size_t{1} << 16);
    for (int64_t first = 0; first < shape[0]; first += step) {
      const int64_t count = std::min(step, shape[0] - first);
      RETURN_IF_ERROR(sources_.delta_rows(source, name, first, count, block.data()));
      for (int64_t i = 0; i < count * columns; ++i) {
        const uint32_t bits = magnitude_bits(block[static_cast<size_t>(i)]);
        if (pass == 0)
          ++counts[bits >> 16];
        else if (bits >> 16 == found >> 16)
          ++counts[bits & 0xffffu];
      }
    }
    size_t at = counts.size() - 1;
    for (; at > 0 && counts[at] < rank; --at) rank -= counts[at];
    found |= static_cast<uint32_t>(at) << (pass == 0 ? 16 : 0);
  }
  return std::bit_cast<float>(found);
}

}  // namespace deltad
