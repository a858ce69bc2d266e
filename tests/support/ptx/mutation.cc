#include "tests/support/ptx/mutation.h"

#include <algorithm>

namespace deltad::ptx {

std::vector<Options> schedules() {
  return {{.order = Order::kFifo},
          {.order = Order::kLifo, .resident_blocks = 8},
          {.order = Order::kRandom, .arrival = Arrival::kRandom, .resident_blocks = 8},
          {.order = Order::kFifo, .arrival = Arrival::kEarly}};
}

Survivors survivors(const std::vector<Mutation>& mutations,
                    const std::function<std::string(const Options&, Outcome&)>& run) {
  Survivors s;
  std::vector<Outcome> right;
  uint64_t most_steps = 0;
  for (const Options& o : schedules()) {
    right.emplace_back();
    if (const std::string wrong = run(o, right.back()); !wrong.empty()) {
      s.wrong.push_back("without a mutation: " + wrong);
      return s;
    }
    most_steps = std::max(most_steps, right.back().steps);
  }
  for (const Mutation& m : mutations) {
    bool reached = false, noticed = false;
    for (size_t i = 0; i < right.size() && !noticed; ++i) {
      if (!right[i].exercises(m)) continue;
      reached = true;
      Options o = schedules()[i];
      o.mutation = m;
      o.max_steps = 2 * most_steps + 10'000;
      Outcome out;
      noticed = !run(o, out).empty();
    }
    s.tried += reached;
    if (reached && !noticed) s.unnoticed.push_back(m);
    if (!reached && m.kind == Mutation::Kind::kSkip) s.wrong.push_back(m.text + ": not reached");
  }
  return s;
}

}  // namespace deltad::ptx
