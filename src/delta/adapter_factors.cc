#include "delta/adapter_factors.h"

#include <fmt/core.h>

#include <cmath>

#include "tensor/float16.h"

namespace deltad {

Result<AdapterFactorSet> read_factors(const LoraAdapter& adapter) {
  AdapterFactorSet set;
  for (const auto& [weight, change] : adapter.changes()) {
    if (change.whole || change.embedding)
      return unimplemented(
          fmt::format("{}: tensor '{}': {}; only low-rank factors of linear "
                      "layers can be pooled",
                      adapter.path(), (change.whole ? change.whole : change.a)->name,
                      change.whole ? "it is saved whole" : "it adapts the embeddings"));
    AdapterFactors& f = set[weight];
    f.rank = change.rank;
    f.scale = change.scale;
    f.inputs = change.a->entry.shape[1];
    f.outputs = change.b->entry.shape[0];
    f.a.resize(static_cast<size_t>(f.rank * f.inputs));
    f.b.resize(static_cast<size_t>(f.outputs * f.rank));
    RETURN_IF_ERROR(adapter.read_rows(change, *change.a, 0, f.rank, f.a.data()));
    RETURN_IF_ERROR(adapter.read_rows(change, *change.b, 0, f.outputs, f.b.data()));
    for (const auto& [tensor, values] : {std::pair{&*change.a, &f.a}, std::pair{&*change.b, &f.b}})
      for (const float value : *values)
        if (!std::isfinite(bf16_to_f32(f32_to_bf16(value))))
          return invalid_argument(
              fmt::format("{}: tensor '{}': a value is {}, expected finite numbers of bf16",
                          adapter.path(), tensor->name, value));
  }
  RETURN_IF_ERROR(adapter.unchanged());
  return set;
}

}  // namespace deltad
