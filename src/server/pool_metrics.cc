#include "server/pool_metrics.h"

namespace deltad {

void render_pool(const PoolFigures& figures, PrometheusText& out) {
  const auto gauge = [&](const char* name, const char* help, int64_t value) {
    out.family(name, "gauge", help);
    out.sample({}, static_cast<double>(value));
  };
  gauge("deltad_pool_budget_bytes", "What the files of the adapter pool's members may take.",
        figures.budget);
  gauge("deltad_pool_used_bytes", "What they take.", figures.bytes);
  gauge("deltad_pool_adapters", "Adapters of the pool, each a name.", figures.adapters);
  gauge("deltad_pool_members", "Members of the pool, which answer under those names.",
        figures.members);
  gauge("deltad_pool_operations_open", "Operations of the pool that wait or run.", figures.waiting);
  out.family("deltad_pool_operations_total", "counter",
             "Operations of the pool that have ended, by kind and result.");
  for (size_t kind = 0; kind < kPoolOperationKinds; ++kind)
    for (size_t result = 0; result < kPoolResults; ++result)
      out.sample({{"operation", pool_operation_kind_name(static_cast<PoolOperationKind>(kind))},
                  {"result", pool_operation_state_name(static_cast<PoolOperationState>(
                                 static_cast<size_t>(PoolOperationState::kDone) + result))}},
                 static_cast<double>(figures.operations[kind][result]));
}

}  // namespace deltad
