#include "delta/text_changes.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "delta/checkpoint_text.h"
#include "delta/tokenizer_difference.h"
#include "io/gguf.h"

namespace deltad {
namespace {

using Json = nlohmann::json;

// Templates are compiled with their last newline taken off.
std::string without_last_newline(std::string text) {
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

// Equal bytes, or (JSON) equal values apart from who wrote them.
bool same_content(const std::string& name, const std::string& a, const std::string& b) {
  if (a == b) return true;
  if (name == "chat_template.jinja") return without_last_newline(a) == without_last_newline(b);
  Json x = Json::parse(a, nullptr, false), y = Json::parse(b, nullptr, false);
  if (!x.is_object() || !y.is_object()) return false;
  for (const char* key : {"transformers_version", "_from_model_config"}) {
    x.erase(key);
    y.erase(key);
  }
  return x == y;
}

class TextComparer {
 public:
  TextComparer(const Checkpoint& base, const Tune& tune) : base_(base), tune_(tune) {}

  Result<std::vector<TextChange>> run() {
    bool all_same = true;
    for (const char* name : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja",
                             "generation_config.json"}) {
      const std::string content = tune_.text_file(name);
      all_same &= content.empty() || same_content(name, base_.text_file(name), content);
    }
    // A whole model may say its end tokens in its config.json only.
    if (all_same && (tune_.checkpoint() == nullptr ||
                     tune_.checkpoint()->config().eos_ids == base_.config().eos_ids))
      return std::move(changes_);
    ASSIGN_OR_RETURN(const auto theirs, checkpoint_text(base_));
    if (theirs == nullptr) {
      take_unlike("tokenizer.json");
      take_unlike("tokenizer_config.json");
      take_unlike("chat_template.jinja");
      take_unlike("generation_config.json");
      return std::move(changes_);
    }
    auto ours = load_text_assets([&](const std::string& name) { return tune_.text_file(name); },
                                 theirs.get());
    if (!ours.ok()) return ours.status().in(tune_.path());
    compare_tokenizer(*theirs, **ours);
    compare_template(*theirs, **ours);
    compare_generation(*theirs, **ours);
    return std::move(changes_);
  }

 private:
  void take(const std::string& name, const std::string& reason) {
    const auto same = [&](const TextChange& change) { return change.name == name; };
    if (std::any_of(changes_.begin(), changes_.end(), same)) return;
    const std::string content = tune_.text_file(name);
    if (!content.empty()) changes_.push_back({name, content, reason});
  }

  // Without a tokenizer in the base there is nothing to compare with but the files.
  void take_unlike(const std::string& name) {
    if (!same_content(name, base_.text_file(name), tune_.text_file(name)))
      take(name, base_.text_file(name).empty() ? "the base has none" : "its content differs");
  }

  void compare_tokenizer(const TextAssets& theirs, const TextAssets& ours) {
    const std::string json = tune_.text_file("tokenizer.json");
    if (!json.empty() && !same_content("tokenizer.json", base_.text_file("tokenizer.json"), json)) {
      std::string reason = tokenizer_difference(*theirs.tokenizer, *ours.tokenizer);
      if (reason.empty() && merges_of(json) != base_merges()) reason = "its merges differ";
      if (!reason.empty()) take("tokenizer.json", reason);
    }
    if (ours.bos_token != theirs.bos_token)
      take("tokenizer_config.json",
           fmt::format("bos_token is '{}', the base has '{}'", ours.bos_token, theirs.bos_token));
    if (ours.eos_token != theirs.eos_token)
      take("tokenizer_config.json",
           fmt::format("eos_token is '{}', the base has '{}'", ours.eos_token, theirs.eos_token));
  }

  std::vector<std::string> base_merges() const {
    if (base_.gguf() == nullptr) return merges_of(base_.text_file("tokenizer.json"));
    auto merges = base_.gguf()->strings("tokenizer.ggml.merges");
    return merges.ok() ? std::move(*merges) : std::vector<std::string>();
  }

  void compare_template(const TextAssets& theirs, const TextAssets& ours) {
    if (without_last_newline(ours.chat_template_source) ==
        without_last_newline(theirs.chat_template_source))
      return;
    const bool own_file = !tune_.text_file("chat_template.jinja").empty();
    take(own_file ? "chat_template.jinja" : "tokenizer_config.json", "its chat template differs");
  }

  void compare_generation(const TextAssets& theirs, const TextAssets& ours) {
    const GenerationDefaults &a = ours.defaults, &b = theirs.defaults;
    const bool same_sampling = a.temperature == b.temperature && a.top_p == b.top_p &&
                               a.min_p == b.min_p && a.top_k == b.top_k &&
                               a.repetition_penalty == b.repetition_penalty;
    std::vector<int32_t> ends = ours.eos_ids, base_ends = theirs.eos_ids;
    std::sort(ends.begin(), ends.end());
    std::sort(base_ends.begin(), base_ends.end());
    if (ends != base_ends && tune_.text_file("generation_config.json").empty()) {
      changes_.push_back({"generation_config.json", Json{{"eos_token_id", ends}}.dump(2) + "\n",
                          "its end tokens differ"});
    } else if (ends != base_ends) {
      take("generation_config.json", "its end tokens differ");
    } else if (!same_sampling) {
      take("generation_config.json", "its sampling settings differ");
    }
  }

  const Checkpoint& base_;
  const Tune& tune_;
  std::vector<TextChange> changes_;
};

}  // namespace

Result<std::vector<TextChange>> text_changes(const Checkpoint& base, const Tune& tune) {
  return TextComparer(base, tune).run();
}

}  // namespace deltad
