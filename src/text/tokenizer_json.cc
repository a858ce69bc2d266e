// tokenizer.json, as the `tokenizers` library writes it, read into a TokenizerSpec. What a file may
// say and we do not do is refused by name; truncation and padding are for training, and ignored.
#include <fmt/core.h>

#include <algorithm>

#include "io/quote.h"
#include "text/json_reader.h"
#include "text/tokenizer_spec.h"

namespace deltad {
namespace {

namespace dom = simdjson::dom;

Status unsupported(const JsonReader& at, std::string_view type) {
  return unimplemented(fmt::format("{} {} is not supported", at.path(), quoted_name(type)));
}

// ---- model --------------------------------------------------------------------------------------

Result<TokenizerSpec> read_vocabulary(const JsonReader& model) {
  ASSIGN_OR_RETURN(JsonReader at, model.member("vocab"));
  ASSIGN_OR_RETURN(dom::object vocab, at.object());
  int64_t highest = -1;
  for (dom::key_value_pair entry : vocab) {
    int64_t id = -1;
    if (entry.value.get(id) != simdjson::SUCCESS || id < 0 || id >= kMaxTokenId) {
      return invalid_argument(fmt::format("{}[{}] is not an id from 0 to {}", at.path(),
                                          quoted_name(entry.key), kMaxTokenId - 1));
    }
    highest = std::max(highest, id);
  }
  TokenizerSpec spec(static_cast<size_t>(highest + 1));
  for (dom::key_value_pair entry : vocab) {
    int64_t id = entry.value.get_int64().value_unsafe();
    if (spec.vocabulary.find(entry.key) >= 0) {
      return invalid_argument(
          fmt::format("{}[{}] is there twice", at.path(), quoted_name(entry.key)));
    }
    if (!spec.vocabulary.add(entry.key, static_cast<int32_t>(id))) {
      std::string_view other = spec.vocabulary.text(static_cast<int32_t>(id));
      return invalid_argument(fmt::format("{}[{}] has the id {}, which {} has already", at.path(),
                                          quoted_name(entry.key), id, quoted_name(other)));
    }
    ++spec.vocabulary_size;
  }
  return spec;
}

// ["Ġ", "t"], or "Ġ t" in older files.
bool read_merge(dom::element value, std::string_view& left, std::string_view& right) {
  dom::array pair;
  if (value.get(pair) == simdjson::SUCCESS) {
    return pair.size() == 2 && pair.at(0).get(left) == simdjson::SUCCESS &&
           pair.at(1).get(right) == simdjson::SUCCESS;
  }
  std::string_view both;
  return value.get(both) == simdjson::SUCCESS && split_merge(both, left, right);
}

Status read_merges(const JsonReader& model, TokenizerSpec& spec) {
  ASSIGN_OR_RETURN(JsonReader at, model.member("merges"));
  ASSIGN_OR_RETURN(dom::array merges, at.array());
  size_t index = 0;
  for (dom::element value : merges) {
    std::string_view left, right;
    if (value.is_string() && value.get_string().value_unsafe().starts_with("#version")) continue;
    if (!read_merge(value, left, right)) {
      return invalid_argument(fmt::format("{}[{}] is not a pair of tokens", at.path(), index));
    }
    auto merge = make_merge(spec.vocabulary, left, right);
    if (!merge.ok()) return merge.status().in(fmt::format("{}[{}]", at.path(), index));
    spec.merges.push_back(*merge);
    ++index;
  }
  return {};
}

Result<TokenizerSpec> read_model(const JsonReader& root) {
  ASSIGN_OR_RETURN(JsonReader model, root.member("model"));
  RETURN_IF_ERROR(model.object().status());
  ASSIGN_OR_RETURN(std::string_view type,
                   model.string_or("type", model.find("merges") ? "BPE" : ""));
  if (type != "BPE") return unsupported(model, type);
  for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    ASSIGN_OR_RETURN(std::string_view text, model.string_or(affix, ""));
    if (!text.empty()) return unimplemented(fmt::format("model.{} is not supported", affix));
  }
  ASSIGN_OR_RETURN(bool byte_fallback, model.boolean_or("byte_fallback", false));
  if (byte_fallback) return unimplemented("model.byte_fallback is not supported");
  ASSIGN_OR_RETURN(TokenizerSpec spec, read_vocabulary(model));
  RETURN_IF_ERROR(read_merges(model, spec));
  ASSIGN_OR_RETURN(spec.bpe.ignore_merges, model.boolean_or("ignore_merges", false));
  ASSIGN_OR_RETURN(spec.bpe.fuse_unknown, model.boolean_or("fuse_unk", false));
  if (model.find("unk_token")) {
    ASSIGN_OR_RETURN(std::string_view unknown, model.string("unk_token"));
    spec.bpe.unknown = spec.vocabulary.find(unknown);
    if (spec.bpe.unknown < 0) {
      return invalid_argument(
          fmt::format("model.unk_token {} is not in the vocabulary", quoted_name(unknown)));
    }
  }
  return spec;
}

Status read_added_tokens(const JsonReader& root, TokenizerSpec& spec) {
  auto at = root.find("added_tokens");
  if (!at) return {};
  ASSIGN_OR_RETURN(dom::array tokens, at->array());
  size_t index = 0;
  for (dom::element value : tokens) {
    JsonReader token(value, fmt::format("{}[{}]", at->path(), index++));
    AddedToken added;
    ASSIGN_OR_RETURN(std::string_view content, token.string("content"));
    added.content = content;
    ASSIGN_OR_RETURN(added.special, token.boolean_or("special", false));
    ASSIGN_OR_RETURN(added.single_word, token.boolean_or("single_word", false));
    ASSIGN_OR_RETURN(added.lstrip, token.boolean_or("lstrip", false));
    ASSIGN_OR_RETURN(added.rstrip, token.boolean_or("rstrip", false));
    ASSIGN_OR_RETURN(added.normalized, token.boolean_or("normalized", !added.special));
    Status status = add_token(spec, std::move(added));
    if (!status.ok()) return status.in(token.path());
  }
  return {};
}

// ---- the steps around the model -----------------------------------------------------------------

// Calls read(step) for a step, or for each of a Sequence's, at any depth that JSON allows.
template <typename Read>
Status for_each_step(const JsonReader& at, const char* list, const Read& read) {
  ASSIGN_OR_RETURN(std::string_view type, at.string("type"));
  if (type != "Sequence") return read(at, type);
  ASSIGN_OR_RETURN(JsonReader members, at.member(list));
  ASSIGN_OR_RETURN(dom::array steps, members.array());
  size_t index = 0;
  for (dom::element step : steps) {
    JsonReader reader(step, fmt::format("{}[{}]", members.path(), index++));
    RETURN_IF_ERROR(for_each_step(reader, list, read));
  }
  return {};
}

Status read_normalizer(const JsonReader& root, TokenizerSpec& spec) {
  auto at = root.find("normalizer");
  if (!at) return {};
  return for_each_step(*at, "normalizers", [&](const JsonReader& step, std::string_view type) {
    if (type != "NFC") return unsupported(step, type);
    spec.nfc = true;
    return Status();
  });
}

Result<PreTokenizerStep> read_split(const JsonReader& at) {
  PreTokenizerStep step;
  step.kind = PreTokenizerStep::Kind::kSplit;
  ASSIGN_OR_RETURN(JsonReader pattern, at.member("pattern"));
  step.is_literal = pattern.find("String").has_value();
  ASSIGN_OR_RETURN(std::string_view text, pattern.string(step.is_literal ? "String" : "Regex"));
  step.pattern = text;
  ASSIGN_OR_RETURN(step.invert, at.boolean_or("invert", false));
  ASSIGN_OR_RETURN(std::string_view behavior, at.string("behavior"));
  constexpr std::pair<std::string_view, SplitBehavior> kBehaviors[] = {
      {"Removed", SplitBehavior::kRemoved},
      {"Isolated", SplitBehavior::kIsolated},
      {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
      {"MergedWithNext", SplitBehavior::kMergedWithNext},
      {"Contiguous", SplitBehavior::kContiguous}};
  for (const auto& [name, value] : kBehaviors) {
    if (name != behavior) continue;
    step.behavior = value;
    return step;
  }
  return invalid_argument(
      fmt::format("{} {} is none", at.path_to("behavior"), quoted_name(behavior)));
}

Status read_pre_tokenizer(const JsonReader& root, TokenizerSpec& spec) {
  auto at = root.find("pre_tokenizer");
  if (!at) return {};
  return for_each_step(
      *at, "pretokenizers", [&](const JsonReader& at, std::string_view type) -> Status {
        PreTokenizerStep step;
        if (type == "Digits") {
          step.kind = PreTokenizerStep::Kind::kDigits;
          ASSIGN_OR_RETURN(step.individual_digits, at.boolean_or("individual_digits", false));
        } else if (type == "ByteLevel") {
          ASSIGN_OR_RETURN(step.add_prefix_space, at.boolean_or("add_prefix_space", true));
          ASSIGN_OR_RETURN(step.use_regex, at.boolean_or("use_regex", true));
        } else if (type == "Split") {
          ASSIGN_OR_RETURN(step, read_split(at));
        } else {
          return unsupported(at, type);
        }
        spec.pre_tokenizer.push_back(std::move(step));
        return {};
      });
}

// The ids of a special token of a template, appended.
Status read_template_ids(const JsonReader& post, std::string_view token,
                         std::vector<int32_t>& ids) {
  ASSIGN_OR_RETURN(JsonReader tokens, post.member("special_tokens"));
  ASSIGN_OR_RETURN(JsonReader entry, tokens.member(token));
  ASSIGN_OR_RETURN(JsonReader at, entry.member("ids"));
  ASSIGN_OR_RETURN(dom::array values, at.array());
  for (dom::element value : values) {
    ASSIGN_OR_RETURN(int64_t id, JsonReader(value, at.path()).integer());
    if (id < 0 || id >= kMaxTokenId) {
      return invalid_argument(fmt::format("{} has {}, which is no id", at.path(), id));
    }
    ids.push_back(static_cast<int32_t>(id));
  }
  return {};
}

// {"single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}], …}
Status read_template(const JsonReader& post, TokenizerSpec& spec) {
  ASSIGN_OR_RETURN(JsonReader at, post.member("single"));
  ASSIGN_OR_RETURN(dom::array pieces, at.array());
  std::vector<int32_t> before, after;
  int sequences = 0;
  for (dom::element piece : pieces) {
    JsonReader reader(piece, at.path());
    if (auto special = reader.find("SpecialToken")) {
      ASSIGN_OR_RETURN(std::string_view token, special->string("id"));
      RETURN_IF_ERROR(read_template_ids(post, token, sequences == 0 ? before : after));
    } else {
      ASSIGN_OR_RETURN(JsonReader sequence, reader.member("Sequence"));
      ASSIGN_OR_RETURN(std::string_view id, sequence.string("id"));
      if (id != "A")
        return invalid_argument(fmt::format("{} names text {}", at.path(), quoted_name(id)));
      ++sequences;
    }
  }
  if (sequences != 1) {
    return unimplemented(
        fmt::format("{} has the text {} times, once is supported", at.path(), sequences));
  }
  spec.prefix.insert(spec.prefix.begin(), before.begin(), before.end());
  spec.suffix.insert(spec.suffix.end(), after.begin(), after.end());
  return {};
}

Status read_post_processor(const JsonReader& root, TokenizerSpec& spec) {
  auto at = root.find("post_processor");
  if (!at) return {};
  return for_each_step(*at, "processors", [&](const JsonReader& step, std::string_view type) {
    if (type == "ByteLevel") return Status();  // is about offsets only
    if (type == "TemplateProcessing") return read_template(step, spec);
    return unsupported(step, type);
  });
}

Status check_decoder(const JsonReader& root) {
  auto at = root.find("decoder");
  if (!at) return unimplemented("a tokenizer without a decoder is not supported");
  int byte_levels = 0;
  RETURN_IF_ERROR(
      for_each_step(*at, "decoders", [&](const JsonReader& step, std::string_view type) {
        if (type == "ByteLevel") return ++byte_levels, Status();
        if (type == "Fuse") return Status();
        return unsupported(step, type);
      }));
  if (byte_levels == 1) return {};
  return unimplemented(
      fmt::format("decoder has {} steps ByteLevel, one is supported", byte_levels));
}

}  // namespace

Result<std::shared_ptr<const Tokenizer>> Tokenizer::from_json(std::string_view tokenizer_json) {
  dom::parser parser;
  ASSIGN_OR_RETURN(dom::element document, parse_json(parser, tokenizer_json));
  JsonReader root(document, "");
  ASSIGN_OR_RETURN(TokenizerSpec spec, read_model(root));
  RETURN_IF_ERROR(read_added_tokens(root, spec));
  RETURN_IF_ERROR(read_normalizer(root, spec));
  RETURN_IF_ERROR(read_pre_tokenizer(root, spec));
  RETURN_IF_ERROR(read_post_processor(root, spec));
  RETURN_IF_ERROR(check_decoder(root));
  return build_tokenizer(std::move(spec));
}

}  // namespace deltad
