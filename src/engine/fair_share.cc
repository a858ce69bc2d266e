#include "engine/fair_share.h"

#include <algorithm>

namespace deltad {

SharedOut share_out(std::vector<ShareDemand> demands, double open_weight, double capacity) {
  const auto per_weight = [](const ShareDemand& d) { return (d.generating + d.prompt) / d.weight; };
  std::sort(demands.begin(), demands.end(), [](const ShareDemand& a, const ShareDemand& b) {
    return (a.generating + a.prompt) * b.weight < (b.generating + b.prompt) * a.weight;
  });
  double weight = open_weight;
  for (const ShareDemand& d : demands) weight += d.weight;
  // The level rises until the capacity is used up; who has enough leaves the rest to the others.
  double level = 0, left = std::max(capacity, 0.0);
  size_t full = 0;
  for (; full < demands.size(); ++full) {
    const ShareDemand& d = demands[full];
    level = left / weight;
    if (per_weight(d) > level) break;
    left -= d.generating + d.prompt;
    weight -= d.weight;
  }
  SharedOut out;
  for (size_t i = 0; i < full; ++i) out.prompts += demands[i].prompt;
  for (size_t i = full; i < demands.size(); ++i)
    out.prompts += std::max(demands[i].weight * level - demands[i].generating, 0.0);
  if (full < demands.size())
    out.prompts += open_weight * level;
  else if (open_weight > 0)
    out.prompts += left;
  else
    out.left = left;
  return out;
}

}  // namespace deltad
