// TextAssets from the files of a model's or a variant's folder. A file of the variant's own holds
// as a whole (generation_config.json), or for the keys that it has (tokenizer_config.json, whose
// template may lie in a file of its own); what neither says is the base's.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "text/json_reader.h"
#include "text/text_assets.h"

namespace deltad {
namespace {

namespace dom = simdjson::dom;

// A JSON file with the parser that keeps it.
struct JsonFile {
  dom::parser parser;
  std::optional<JsonReader> root;  // none if there is no such file

  Status read(const std::string& content) {
    if (content.empty()) return {};
    ASSIGN_OR_RETURN(dom::element document, parse_json(parser, content));
    root.emplace(document, "");
    return root->object().status();
  }
};

// "<s>", or an added token with that content; null: no such token.
Result<std::string> token_content(const JsonReader& config, std::string_view key) {
  auto token = config.find(key);
  if (!token) return std::string();
  ASSIGN_OR_RETURN(std::string_view content,
                   token->is_string() ? token->string() : token->string("content"));
  return std::string(content);
}

// A template, or a list of named ones of which "default" is meant. "" if there is none.
Result<std::string> template_source(const JsonReader& config) {
  auto value = config.find("chat_template");
  if (!value) return std::string();
  if (!value->is_array()) {
    ASSIGN_OR_RETURN(std::string_view source, value->string());
    return std::string(source);
  }
  ASSIGN_OR_RETURN(dom::array entries, value->array());
  size_t index = 0;
  for (dom::element element : entries) {
    JsonReader entry(element, fmt::format("{}[{}]", value->path(), index++));
    ASSIGN_OR_RETURN(std::string_view name, entry.string("name"));
    if (name != "default") continue;
    ASSIGN_OR_RETURN(std::string_view source, entry.string("template"));
    return std::string(source);
  }
  return invalid_argument(fmt::format("{} has no entry named default", value->path()));
}

// Appends the ids of eos_token_id: a number, or a list of some.
Status read_end_ids(const JsonReader& config, std::vector<int32_t>& ids) {
  auto value = config.find("eos_token_id");
  if (!value) return {};
  auto append = [&](const JsonReader& at) -> Status {
    ASSIGN_OR_RETURN(int64_t id, at.integer());
    if (id < 0 || id > INT32_MAX) {
      return invalid_argument(fmt::format("{} is {}, which is no token id", at.path(), id));
    }
    ids.push_back(static_cast<int32_t>(id));
    return {};
  };
  if (!value->is_array()) return append(*value);
  ASSIGN_OR_RETURN(dom::array list, value->array());
  size_t index = 0;
  for (dom::element id : list) {
    RETURN_IF_ERROR(append(JsonReader(id, fmt::format("{}[{}]", value->path(), index++))));
  }
  return {};
}

// key, if it is there, must be a finite number for which ok is true.
template <typename Ok>
Status read_number(const JsonReader& config, const char* key, const char* expected, const Ok& ok,
                   std::optional<double>& out) {
  auto value = config.find(key);
  if (!value) return {};
  ASSIGN_OR_RETURN(double number, value->number());
  if (!std::isfinite(number) || !ok(number)) {
    return invalid_argument(fmt::format("{} is {}, {} was expected", key, number, expected));
  }
  out = number;
  return {};
}

Status read_defaults(const JsonReader& config, GenerationDefaults& out) {
  RETURN_IF_ERROR(read_number(
      config, "temperature", "0 or more", [](double x) { return x >= 0; }, out.temperature));
  RETURN_IF_ERROR(read_number(
      config, "top_p", "above 0 and at most 1", [](double x) { return x > 0 && x <= 1; },
      out.top_p));
  RETURN_IF_ERROR(read_number(
      config, "min_p", "0 to 1", [](double x) { return x >= 0 && x <= 1; }, out.min_p));
  RETURN_IF_ERROR(read_number(
      config, "repetition_penalty", "above 0", [](double x) { return x > 0; },
      out.repetition_penalty));
  if (auto value = config.find("top_k")) {
    ASSIGN_OR_RETURN(int64_t top_k, value->integer());
    if (top_k < -1 || top_k > INT32_MAX) {
      return invalid_argument(fmt::format("top_k is {}, 0 (all) or more was expected", top_k));
    }
    out.top_k = static_cast<int32_t>(std::max<int64_t>(top_k, 0));
  }
  return {};
}

class TextFiles {
 public:
  TextFiles(const std::function<std::string(const std::string&)>& file, const TextAssets* base)
      : file_(file), base_(base) {}

  Result<std::shared_ptr<const TextAssets>> read() {
    RETURN_IF_ERROR(read_tokenizer());
    RETURN_IF_ERROR(read_tokenizer_config());
    RETURN_IF_ERROR(read_generation());
    return std::shared_ptr<const TextAssets>(std::make_shared<TextAssets>(std::move(assets_)));
  }

 private:
  Status read_tokenizer() {
    std::string json = file_("tokenizer.json");
    if (json.empty()) {
      if (base_ == nullptr) return not_found("tokenizer.json is missing");
      assets_.tokenizer = base_->tokenizer;
      return {};
    }
    auto tokenizer = Tokenizer::from_json(json);
    if (!tokenizer.ok()) return tokenizer.status().in("tokenizer.json");
    assets_.tokenizer = std::move(*tokenizer);
    return {};
  }

  Status read_tokenizer_config() {
    std::string source = file_("chat_template.jinja");
    std::string origin = "chat_template.jinja";
    JsonFile config;
    Status status = config.read(file_("tokenizer_config.json"));
    if (status.ok() && config.root) status = read_tokens(*config.root);
    if (status.ok() && config.root && source.empty()) {
      origin = "tokenizer_config.json: chat_template";
      auto found = template_source(*config.root);
      status = found.status();
      if (found.ok()) source = std::move(*found);
    }
    if (!status.ok()) return status.in("tokenizer_config.json");
    if (base_ != nullptr) {
      if (!has_bos_) assets_.bos_token = base_->bos_token;
      if (!has_eos_) assets_.eos_token = base_->eos_token;
    }
    return set_template(std::move(source), origin);
  }

  Status read_tokens(const JsonReader& config) {
    has_bos_ = config.has("bos_token");
    has_eos_ = config.has("eos_token");
    ASSIGN_OR_RETURN(assets_.bos_token, token_content(config, "bos_token"));
    ASSIGN_OR_RETURN(assets_.eos_token, token_content(config, "eos_token"));
    return {};
  }

  Status set_template(std::string source, const std::string& origin) {
    if (source.empty()) {
      if (base_ == nullptr) return {};
      assets_.chat_template = base_->chat_template;
      assets_.chat_template_source = base_->chat_template_source;
      return {};
    }
    auto compiled = ChatTemplate::compile(source);
    if (!compiled.ok()) return compiled.status().in(origin);
    assets_.chat_template = std::move(*compiled);
    assets_.chat_template_source = std::move(source);
    return {};
  }

  // Ends are what generation_config.json says, else config.json, else the base; and eos_token.
  Status read_generation() {
    JsonFile generation, config;
    Status status = generation.read(file_("generation_config.json"));
    if (status.ok() && generation.root) {
      status = read_defaults(*generation.root, assets_.defaults);
      if (status.ok()) status = read_end_ids(*generation.root, assets_.eos_ids);
    } else if (base_ != nullptr) {
      assets_.defaults = base_->defaults;
    }
    if (!status.ok()) return status.in("generation_config.json");
    if (assets_.eos_ids.empty()) {
      status = config.read(file_("config.json"));
      if (status.ok() && config.root) status = read_end_ids(*config.root, assets_.eos_ids);
      if (!status.ok()) return status.in("config.json");
    }
    if (assets_.eos_ids.empty()) take_ends_of_base();
    int32_t eos = assets_.tokenizer->token_id(assets_.eos_token);
    if (eos >= 0) add_end(eos);
    return {};
  }

  // The tokens that end the base's texts, with the ids that they have here.
  void take_ends_of_base() {
    if (base_ == nullptr) return;
    for (int32_t id : base_->eos_ids) {
      if (assets_.tokenizer != base_->tokenizer) {
        id = assets_.tokenizer->token_id(base_->tokenizer->token_text(id));
      }
      if (id >= 0) add_end(id);
    }
  }

  void add_end(int32_t id) {
    auto& ids = assets_.eos_ids;
    if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
  }

  const std::function<std::string(const std::string&)>& file_;
  const TextAssets* base_;
  TextAssets assets_;
  bool has_bos_ = false, has_eos_ = false;
};

}  // namespace

Result<std::shared_ptr<const TextAssets>> load_text_assets(
    const std::function<std::string(const std::string&)>& file, const TextAssets* base) {
  return TextFiles(file, base).read();
}

}  // namespace deltad
