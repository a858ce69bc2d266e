// LoraConfig: what a PEFT adapter_config.json says about scaling. Refuses by name every setting
// under which the adapter is not plain Δ = s·BA on this base. Plain data.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"

namespace deltad {

class LoraConfig {
 public:
  // json: adapter_config.json; where: its path, for messages.
  static Result<LoraConfig> parse(const std::string& json, const std::string& where);

  struct Scale {
    int64_t rank = 0;
    double factor = 0;  // s
  };
  // Rank and s for a module by its name ("model.layers.0.mlp.up_proj"): rank_pattern and
  // alpha_pattern are searched in their order; their keys are regular expressions for the module's
  // whole name or for its end after a dot.
  Result<Scale> scale_of(const std::string& module) const;

  // Whether target_modules (a list, a regular expression or "all-linear"), exclude_modules and
  // layers_to_transform name the module. True if the config has no target_modules.
  Result<bool> is_target(const std::string& module) const;

  bool ties_embeddings() const { return ensure_weight_tying_; }

 private:
  using Pattern = std::vector<std::pair<std::string, double>>;
  Result<double> look_up(const Pattern& pattern, const std::string& module, double otherwise) const;

  // Names of modules, as a list of whole names or their ends, or as one regular expression.
  struct Modules {
    bool given = false, is_pattern = false;
    std::vector<std::string> names;
  };
  Result<bool> name_it(const Modules& modules, const std::string& module) const;
  Result<bool> in_layers(const std::string& module) const;

  std::string where_;
  Modules target_, exclude_;
  std::vector<int64_t> layers_;              // to transform; empty: all
  std::vector<std::string> layer_patterns_;  // of the list that layers_ count
  double rank_ = 0, alpha_ = 0;
  Pattern rank_pattern_, alpha_pattern_;
  bool rslora_ = false, ensure_weight_tying_ = false;
};

}  // namespace deltad
