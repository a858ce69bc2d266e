#include "delta/lora_config.h"

#include <fmt/core.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "io/quote.h"
#include "model/weight_table.h"

namespace deltad {
namespace {

using Json = nlohmann::ordered_json;  // patterns are tried in the file's order

constexpr double kMaxRank = 65536;

// Settings that change what the adapter computes; each must be absent, null, false or empty.
constexpr const char* kUnsupported[] = {"use_dora",
                                        "lora_bias",
                                        "use_qalora",
                                        "use_bdlora",
                                        "arrow_config",
                                        "kasa_config",
                                        "monteclora_config",
                                        "layer_replication",
                                        "target_parameters",
                                        "trainable_token_indices",
                                        "alora_invocation_tokens"};

// Settings named like those that change the arithmetic, but which do not once training is over.
constexpr const char* kInert[] = {"use_rslora",    "megatron_config", "loftq_config",
                                  "eva_config",    "corda_config",    "lora_ga_config",
                                  "velora_config", "runtime_config"};

// A setting of a later PEFT that may change what the adapter computes.
bool may_matter(const std::string& key) {
  const auto is = [&](const char* known) { return key == known; };
  return (key.starts_with("use_") || key.ends_with("_config")) &&
         std::none_of(std::begin(kInert), std::end(kInert), is);
}

bool is_set(const Json& value) {
  if (value.is_null()) return false;
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_array() || value.is_object()) return !value.empty();
  return true;
}

bool read_strings(const Json& value, std::vector<std::string>* out) {
  if (!value.is_array()) return false;
  for (const Json& item : value) {
    if (!item.is_string()) return false;
    out->push_back(item.get<std::string>());
  }
  return true;
}

std::string brief(const Json& value) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 60) + "…";
  return text;
}

struct FreeCode {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct FreeMatch {
  void operator()(pcre2_match_data* match) const { pcre2_match_data_free(match); }
};
struct FreeContext {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};

// `pattern` at the beginning of `module`, in bounded time; the text of its first group, if asked
// for. key: what the config says, for messages.
Result<bool> match(const std::string& pattern, const std::string& key, const std::string& module,
                   const std::string& where, std::string* group = nullptr) {
  int error = 0;
  PCRE2_SIZE at = 0;
  const std::unique_ptr<pcre2_code, FreeCode> code(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                    PCRE2_ANCHORED | PCRE2_UTF, &error, &at, nullptr));
  if (!code)
    return invalid_argument(
        fmt::format("{}: pattern '{}' is not a regular expression", where, key));
  const std::unique_ptr<pcre2_match_data, FreeMatch> match_data(
      pcre2_match_data_create_from_pattern(code.get(), nullptr));
  const std::unique_ptr<pcre2_match_context, FreeContext> context(
      pcre2_match_context_create(nullptr));
  if (!match_data || !context) return internal_error("out of memory");
  pcre2_set_match_limit(context.get(), 100000);
  const int found = pcre2_match(code.get(), reinterpret_cast<PCRE2_SPTR>(module.data()),
                                module.size(), 0, 0, match_data.get(), context.get());
  if (found < 0 && found != PCRE2_ERROR_NOMATCH)
    return invalid_argument(
        fmt::format("{}: pattern '{}' is too costly to match with '{}'", where, key, module));
  if (found > 0 && group != nullptr) {
    const PCRE2_SIZE* at_group = pcre2_get_ovector_pointer(match_data.get());
    if (found > 1) *group = module.substr(at_group[2], at_group[3] - at_group[2]);
  }
  return found >= 0;
}

// A key of rank_pattern and alpha_pattern: the module's whole name, or its end after a dot.
Result<bool> matches(const std::string& key, const std::string& module, const std::string& where) {
  return match("(.*\\.)?(" + key + ")$", key, module, where);
}

bool is_or_ends_with(const std::string& module, const std::string& name) {
  if (module == name) return true;
  const std::string end = "." + name;
  return module.size() > end.size() &&
         module.compare(module.size() - end.size(), end.size(), end) == 0;
}

}  // namespace

Result<LoraConfig> LoraConfig::parse(const std::string& json, const std::string& where) {
  const Json document = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!document.is_object()) return invalid_argument(fmt::format("{}: not a JSON object", where));
  const auto get = [&](const char* key) {
    const auto it = document.find(key);
    return it == document.end() ? Json() : *it;
  };
  const auto bad = [&](const char* key, const char* expected) {
    return invalid_argument(
        fmt::format("{}: {} is {}, expected {}", where, key, brief(get(key)), expected));
  };
  if (get("peft_type") != "LORA")
    return unimplemented(
        fmt::format("{}: peft_type is {}; only LORA is supported", where, brief(get("peft_type"))));
  for (const char* key : kUnsupported)
    if (is_set(get(key)))
      return unimplemented(
          fmt::format("{}: {} is {}; only plain LoRA is supported", where, key, brief(get(key))));
  for (const auto& [key, value] : document.items())
    if (may_matter(key) && is_set(value))
      return unimplemented(
          fmt::format("{}: {} is {}, a setting that is not known; only plain LoRA "
                      "is supported",
                      where, quoted_name(key), brief(value)));
  if (const Json bias = get("bias"); !bias.is_null() && bias != "none")
    return unimplemented(fmt::format(
        "{}: bias is {}; only adapters with bias \"none\" are supported", where, brief(bias)));
  // PiSSA and its kin begin by changing the base's weights, so that BA is not the whole difference.
  if (const Json init = get("init_lora_weights");
      init.is_string() && init != "gaussian" && init != "eva" && init != "orthogonal")
    return unimplemented(fmt::format(
        "{}: init_lora_weights is {}, with which the adapter belongs to changed base weights; save "
        "it as plain LoRA (PEFT: path_initial_model_for_weight_conversion)",
        where, brief(init)));

  LoraConfig config;
  config.where_ = where;
  const Json rank = get("r"), alpha = get("lora_alpha");
  if (!rank.is_number_integer() || rank.get<double>() < 1 || rank.get<double>() > kMaxRank)
    return bad("r", "a whole number, at least 1");
  if (!alpha.is_number() || !std::isfinite(alpha.get<double>()))
    return bad("lora_alpha", "a number");
  config.rank_ = rank.get<double>();
  config.alpha_ = alpha.get<double>();
  config.rslora_ = is_set(get("use_rslora"));
  config.ensure_weight_tying_ = is_set(get("ensure_weight_tying"));
  for (const auto& [key, pattern] : {std::pair{"rank_pattern", &config.rank_pattern_},
                                     std::pair{"alpha_pattern", &config.alpha_pattern_}}) {
    const Json entries = get(key);
    if (entries.is_null()) continue;
    if (!entries.is_object()) return bad(key, "an object");
    for (const auto& [name, value] : entries.items()) {
      const bool is_rank = pattern == &config.rank_pattern_;
      if (!value.is_number() || !std::isfinite(value.get<double>()) ||
          (is_rank && (!value.is_number_integer() || value.get<double>() < 1 ||
                       value.get<double>() > kMaxRank)))
        return bad(key, is_rank ? "whole numbers, at least 1" : "numbers");
      pattern->emplace_back(name, value.get<double>());
    }
  }
  for (const auto& [key, modules] : {std::pair{"target_modules", &config.target_},
                                     std::pair{"exclude_modules", &config.exclude_}}) {
    const Json value = get(key);
    if (value.is_null()) continue;
    modules->given = true;
    modules->is_pattern = value.is_string();
    if (value.is_string())
      modules->names.push_back(value.get<std::string>());
    else if (!read_strings(value, &modules->names))
      return bad(key, "a list of names or a pattern");
  }
  if (const Json layers = get("layers_to_transform"); layers.is_number_integer()) {
    config.layers_.push_back(layers.get<int64_t>());
  } else if (!layers.is_null()) {
    if (!layers.is_array()) return bad("layers_to_transform", "a number or a list of numbers");
    for (const Json& layer : layers) {
      if (!layer.is_number_integer()) return bad("layers_to_transform", "whole numbers");
      config.layers_.push_back(layer.get<int64_t>());
    }
  }
  if (const Json pattern = get("layers_pattern"); pattern.is_string())
    config.layer_patterns_.push_back(pattern.get<std::string>());
  else if (!pattern.is_null() && !read_strings(pattern, &config.layer_patterns_))
    return bad("layers_pattern", "a pattern or a list of patterns");
  return config;
}

Result<bool> LoraConfig::name_it(const Modules& modules, const std::string& module) const {
  if (modules.is_pattern) {
    const std::string& pattern = modules.names[0];
    if (pattern == "all-linear") return is_block_matrix(module + ".weight");
    return match("(?:" + pattern + ")$", pattern, module, where_);
  }
  return std::any_of(modules.names.begin(), modules.names.end(),
                     [&](const std::string& name) { return is_or_ends_with(module, name); });
}

// The number of the module's layer is one of layers_.
Result<bool> LoraConfig::in_layers(const std::string& module) const {
  std::vector<std::string> patterns = layer_patterns_;
  if (patterns.empty()) patterns.emplace_back("[^.]*");
  for (const std::string& pattern : patterns) {
    std::string number;
    ASSIGN_OR_RETURN(const bool found, match(".*\\.(?:" + pattern + ")\\.([0-9]{1,9})\\.", pattern,
                                             module, where_, &number));
    if (found && !number.empty())
      return std::find(layers_.begin(), layers_.end(), std::stoll(number)) != layers_.end();
  }
  return false;
}

Result<bool> LoraConfig::is_target(const std::string& module) const {
  if (exclude_.given) {
    ASSIGN_OR_RETURN(const bool excluded, name_it(exclude_, module));
    if (excluded) return false;
  }
  if (!target_.given) return true;
  ASSIGN_OR_RETURN(const bool named, name_it(target_, module));
  if (!named || layers_.empty() || target_.is_pattern) return named;
  if (std::find(target_.names.begin(), target_.names.end(), module) != target_.names.end())
    return true;
  return in_layers(module);
}

Result<double> LoraConfig::look_up(const Pattern& pattern, const std::string& module,
                                   double otherwise) const {
  for (const auto& [key, value] : pattern) {
    ASSIGN_OR_RETURN(const bool found, matches(key, module, where_));
    if (found) return value;
  }
  return otherwise;
}

Result<LoraConfig::Scale> LoraConfig::scale_of(const std::string& module) const {
  ASSIGN_OR_RETURN(const double rank, look_up(rank_pattern_, module, rank_));
  ASSIGN_OR_RETURN(const double alpha, look_up(alpha_pattern_, module, alpha_));
  return Scale{static_cast<int64_t>(rank), alpha / (rslora_ ? std::sqrt(rank) : rank)};
}

}  // namespace deltad
