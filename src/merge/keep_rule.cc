#include "merge/keep_rule.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace deltad {
namespace {

// exp of the entropy of σ/Σσ rounds a hair above a whole number where all σ are equal.
constexpr double kRounding = 1e-6;

template <typename T>
bool read_number(std::string_view text, T* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

Result<KeepRule> KeepRule::parse(const std::string& text) {
  KeepRule rule;
  if (text == "all") {
    rule.kind = Kind::kAll;
    return rule;
  }
  if (text == "effective") {
    rule.kind = Kind::kEffectiveRank;
    return rule;
  }
  if (text.rfind("rank:", 0) == 0) {
    rule.kind = Kind::kRank;
    if (read_number(std::string_view(text).substr(5), &rule.rank) && rule.rank > 0) return rule;
  } else if (read_number(std::string_view(text), &rule.energy) && rule.energy > 0 &&
             rule.energy <= 1) {
    return rule;
  }
  return invalid_argument(fmt::format(
      "'{}': expected a share of the energy (0.8), 'effective', 'rank:16' or 'all'", text));
}

std::string KeepRule::str() const {
  switch (kind) {
    case Kind::kEnergy:
      return fmt::format("{}", energy);
    case Kind::kEffectiveRank:
      return "effective";
    case Kind::kRank:
      return fmt::format("rank:{}", rank);
    case Kind::kAll:
      break;
  }
  return "all";
}

int64_t KeepRule::count(const std::vector<float>& sigma) const {
  const auto p = static_cast<int64_t>(sigma.size());
  double sum = 0, squares = 0;
  for (const double s : sigma) sum += s, squares += s * s;
  switch (kind) {
    case Kind::kAll:
      return p;
    case Kind::kRank:
      return std::min(rank, p);
    case Kind::kEffectiveRank: {
      double entropy = 0;
      for (const double s : sigma)
        if (s > 0) entropy -= s / sum * std::log(s / sum);
      const auto k = static_cast<int64_t>(std::ceil(std::exp(entropy) - kRounding));
      return std::clamp<int64_t>(k, 1, p);
    }
    case Kind::kEnergy:
      break;
  }
  double kept = 0;
  for (int64_t k = 1; k <= p; ++k) {
    const double s = sigma[static_cast<size_t>(k - 1)];
    kept += s * s;
    if (kept >= energy * squares) return k;
  }
  return p;
}

Result<KeepRules> KeepRules::parse(const std::vector<std::string>& texts) {
  KeepRules rules;
  for (const std::string& text : texts) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos) {
      ASSIGN_OR_RETURN(rules.otherwise, KeepRule::parse(text));
    } else {
      ASSIGN_OR_RETURN(rules.of_kind[text.substr(0, equals)],
                       KeepRule::parse(text.substr(equals + 1)));
    }
  }
  return rules;
}

const KeepRule& KeepRules::of(const std::string& kind) const {
  const auto found = of_kind.find(kind);
  return found == of_kind.end() ? otherwise : found->second;
}

}  // namespace deltad
