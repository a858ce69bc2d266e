#include "merge/pool_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace deltad {

const PoolAdapter* PoolView::adapter(const std::string& name) const {
  const auto at = std::find_if(adapters.begin(), adapters.end(),
                               [&](const PoolAdapter& a) { return a.name == name; });
  return at == adapters.end() ? nullptr : &*at;
}

const PoolMember* PoolView::member(const std::string& digest) const {
  const auto at = std::find_if(members.begin(), members.end(),
                               [&](const PoolMember& m) { return m.digest == digest; });
  return at == members.end() ? nullptr : &*at;
}

const char* pool_step_name(PoolStep step) {
  switch (step) {
    case PoolStep::kStore:
      return "store";
    case PoolStep::kShare:
      return "share";
    case PoolStep::kEightBits:
      return "8 bits";
    case PoolStep::kRank:
      return "rank";
    case PoolStep::kFourBits:
      return "4 bits";
    case PoolStep::kAverage:
      return "average";
    case PoolStep::kOpcm:
      return "opcm";
  }
  return "";
}

std::string pool_report_text(const PoolReport& report) {
  std::string text = fmt::format("{}: {}; {} of {} bytes before, {} after\n", report.operation,
                                 report.accepted ? "accepted" : "refused", report.bytes_before,
                                 report.budget, report.bytes_after);
  for (const PoolTrial& trial : report.trials) {
    text += fmt::format("  {} of {}: {} bytes in {} bits of rank {}, {} before",
                        pool_step_name(trial.step), fmt::join(trial.adapters, ", "),
                        trial.bytes_after, trial.bits, trial.rank, trial.bytes_before);
    if (trial.step == PoolStep::kAverage || trial.step == PoolStep::kOpcm)
      text += fmt::format("; similarity {:.4f}", trial.similarity);
    if (trial.kept_energy < 1)
      text += fmt::format("; {:.2f} % of the energy kept", 100 * trial.kept_energy);
    for (const PoolAdapter& score : trial.scores)
      text += fmt::format("; {} scores {:.3f} of {:.3f} ({:.0f} % kept)", score.name, score.score,
                          score.single_score, 100 * score.share());
    text += trial.accepted ? "; kept\n" : fmt::format("; not kept: {}\n", trial.reason);
  }
  return text;
}

}  // namespace deltad
