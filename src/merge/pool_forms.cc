#include "merge/pool_forms.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "merge/opcm.h"
#include "tensor/float16.h"

namespace deltad {
namespace {

double norm_squares(const LowRank& x) { return std::max(0.0, inner(x, x)); }

LowRank scaled(LowRank x, double factor) {
  for (float& value : x.b.values) value = static_cast<float>(static_cast<double>(value) * factor);
  return x;
}

// Calls `both` where both have a module, otherwise takes the one that is there times its weight.
using MergeModule = std::function<Result<Truncated>(const LowRank& x, const LowRank& y)>;
Result<MergedSet> merge_modules(const LowRankSet& x, double x_weight, const LowRankSet& y,
                                double y_weight, const MergeModule& both) {
  MergedSet out;
  double kept = 0, all = 0;
  for (const auto& [name, mine] : x) {
    const auto theirs = y.find(name);
    Truncated merged;
    if (theirs == y.end()) {
      merged.factors = scaled(mine, x_weight);
    } else {
      auto result = both(mine, theirs->second);
      if (!result.ok()) return result.status().in(name);
      merged = std::move(*result);
    }
    const double squares = norm_squares(merged.factors);
    kept += squares;
    all += squares / std::max(merged.kept_energy, 1e-30);
    out.set[name] = std::move(merged.factors);
  }
  for (const auto& [name, theirs] : y) {
    if (x.count(name) != 0) continue;
    LowRank alone = scaled(theirs, y_weight);
    kept += norm_squares(alone);
    all += norm_squares(alone);
    out.set[name] = std::move(alone);
  }
  if (all > 0) out.kept_energy = std::min(1.0, kept / all);
  return out;
}

}  // namespace

LowRankSet low_rank_of(const AdapterFactorSet& set) {
  LowRankSet out;
  for (const auto& [weight, f] : set) {
    LowRank x;
    x.a = Matrix(f.rank, f.inputs);
    x.b = Matrix(f.outputs, f.rank);
    x.a.values = f.a;
    x.b.values = f.b;
    out[weight] = f.scale == 1 ? std::move(x) : scaled(std::move(x), f.scale);
  }
  return out;
}

AdapterFactorSet factors_of_set(const LowRankSet& set) {
  AdapterFactorSet out;
  for (const auto& [weight, x] : set)
    out[weight] = {x.a.rows, x.a.columns, x.b.rows, 1, x.a.values, x.b.values};
  return out;
}

int64_t largest_rank(const AdapterFactorSet& set) {
  int64_t rank = 0;
  for (const auto& [weight, f] : set) rank = std::max(rank, f.rank);
  return rank;
}

bool is_bf16(const AdapterFactorSet& set) {
  const auto exact = [](float value) { return bf16_to_f32(f32_to_bf16(value)) == value; };
  return std::all_of(set.begin(), set.end(), [&](const auto& of) {
    const AdapterFactors& f = of.second;
    return std::all_of(f.a.begin(), f.a.end(), exact) && std::all_of(f.b.begin(), f.b.end(), exact);
  });
}

double norm_of(const LowRankSet& set) {
  double sum = 0;
  for (const auto& [weight, x] : set) sum += norm_squares(x);
  return std::sqrt(sum);
}

Result<CutSet> cut_rank(const LowRankSet& set, double max_dropped_energy) {
  CutSet out;
  double kept = 0, all = 0;
  for (const auto& [weight, x] : set) {
    Matrix right(x.a.columns, x.a.rows);
    for (int64_t i = 0; i < x.a.rows; ++i)
      for (int64_t c = 0; c < x.a.columns; ++c) right.at(c, i) = x.a.at(i, c);
    auto svd = svd_of_product(x.b, right);
    if (!svd.ok()) return svd.status().in(weight);
    const auto most = static_cast<int64_t>(svd->sigma.size());
    const double whole = energy(*svd, most);
    int64_t rank = 1;
    while (rank < most && energy(*svd, rank) < (1 - max_dropped_energy) * whole) ++rank;
    kept += energy(*svd, rank);
    all += whole;
    out.changed |= rank < x.a.rows;
    out.set[weight] = factors_of(std::move(*svd), rank, whole).factors;
  }
  if (all > 0) out.kept_energy = kept / all;
  return out;
}

Result<MergedSet> merge_average(const LowRankSet& x, const MergeHistory& x_history,
                                const LowRankSet& y, const MergeHistory& y_history) {
  const auto held = static_cast<double>(x_history.held + y_history.held);
  const double x_weight = static_cast<double>(x_history.held) / held, y_weight = 1 - x_weight;
  ASSIGN_OR_RETURN(MergedSet out,
                   merge_modules(x, x_weight, y, y_weight, [&](const LowRank& p, const LowRank& q) {
                     return weighted_sum(p, x_weight, q, y_weight, p.a.rows);
                   }));
  out.history = {x_history.held + y_history.held, held, x_history.norm_sum + y_history.norm_sum};
  return out;
}

Result<MergedSet> merge_opcm(const LowRankSet& x, const MergeHistory& x_history,
                             const LowRankSet& y, const MergeHistory& y_history, double share) {
  ASSIGN_OR_RETURN(
      MergedSet out,
      merge_modules(x, x_history.lambda, y, 1, [&](const LowRank& p, const LowRank& q) {
        return add_projected_low_rank(p, x_history.lambda, q, share, p.a.rows);
      }));
  out.history.held = x_history.held + y_history.held;
  out.history.norm_sum = x_history.norm_sum + y_history.norm_sum;
  const double mean = out.history.norm_sum / static_cast<double>(out.history.held);
  const double size = norm_of(out.set);
  out.history.lambda = size > 0 && mean > 0 ? size / mean : 1;
  for (auto& [weight, factors] : out.set)
    factors = scaled(std::move(factors), 1 / out.history.lambda);
  return out;
}

}  // namespace deltad
