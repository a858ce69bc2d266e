// Writes a TokenizerSpec as a tokenizer.json that the `tokenizers` library loads.
#include <nlohmann/json.hpp>

#include "text/tokenizer_spec.h"

namespace deltad {
namespace {

using nlohmann::ordered_json;

ordered_json byte_level(bool add_prefix_space, bool trim_offsets, bool use_regex) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", add_prefix_space},
          {"trim_offsets", trim_offsets},
          {"use_regex", use_regex}};
}

const char* behavior_name(SplitBehavior behavior) {
  switch (behavior) {
    case SplitBehavior::kRemoved:
      return "Removed";
    case SplitBehavior::kIsolated:
      return "Isolated";
    case SplitBehavior::kMergedWithPrevious:
      return "MergedWithPrevious";
    case SplitBehavior::kMergedWithNext:
      return "MergedWithNext";
    case SplitBehavior::kContiguous:
      return "Contiguous";
  }
  return "";
}

ordered_json pre_tokenizer(const std::vector<PreTokenizerStep>& steps) {
  ordered_json list = ordered_json::array();
  for (const PreTokenizerStep& step : steps) {
    switch (step.kind) {
      case PreTokenizerStep::Kind::kDigits:
        list.push_back({{"type", "Digits"}, {"individual_digits", step.individual_digits}});
        break;
      case PreTokenizerStep::Kind::kSplit:
        list.push_back({{"type", "Split"},
                        {"pattern", {{step.is_literal ? "String" : "Regex", step.pattern}}},
                        {"behavior", behavior_name(step.behavior)},
                        {"invert", step.invert}});
        break;
      case PreTokenizerStep::Kind::kByteLevel:
        list.push_back(byte_level(step.add_prefix_space, true, step.use_regex));
        break;
    }
  }
  if (list.empty()) return nullptr;
  if (list.size() == 1) return list[0];
  return {{"type", "Sequence"}, {"pretokenizers", list}};
}

ordered_json special(std::string_view token, int type) {
  return {{"SpecialToken", {{"id", token}, {"type_id", type}}}};
}

ordered_json post_processor(const TokenizerSpec& spec) {
  ordered_json offsets = byte_level(true, false, true);
  if (spec.prefix.empty() && spec.suffix.empty()) return offsets;
  ordered_json single = ordered_json::array(), pair = ordered_json::array();
  ordered_json tokens = ordered_json::object();
  for (int type : {0, 1}) {
    auto put = [&](const std::vector<int32_t>& ids) {
      for (int32_t id : ids) {
        std::string_view token = spec.vocabulary.text(id);
        tokens[std::string(token)] = {{"id", token}, {"ids", {id}}, {"tokens", {token}}};
        if (type == 0) single.push_back(special(token, type));
        pair.push_back(special(token, type));
      }
    };
    ordered_json text = {{"Sequence", {{"id", type == 0 ? "A" : "B"}, {"type_id", type}}}};
    put(spec.prefix);
    if (type == 0) single.push_back(text);
    pair.push_back(text);
    put(spec.suffix);
  }
  ordered_json around = {{"type", "TemplateProcessing"},
                         {"single", single},
                         {"pair", pair},
                         {"special_tokens", tokens}};
  return {{"type", "Sequence"}, {"processors", ordered_json::array({offsets, around})}};
}

ordered_json model(const TokenizerSpec& spec) {
  const TokenTable& vocabulary = spec.vocabulary;
  ordered_json::object_t vocab;
  for (size_t i = 0; i < vocabulary.ids(); ++i) {
    auto id = static_cast<int32_t>(i);
    std::string_view text = vocabulary.text(id);
    // A text that several ids have can be named once. push_back: the keys are known to differ, and
    // looking each up in an ordered object takes quadratic time.
    if (vocabulary.has(id) && vocabulary.find(text) == id) {
      vocab.std::vector<ordered_json::object_t::value_type>::emplace_back(std::string(text), id);
    }
  }
  ordered_json merges = ordered_json::array();
  for (const Merge& merge : spec.merges) {
    merges.push_back({vocabulary.text(merge.left), vocabulary.text(merge.right)});
  }
  ordered_json unknown = nullptr;
  if (spec.bpe.unknown >= 0) unknown = vocabulary.text(spec.bpe.unknown);
  return {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", unknown},
          {"continuing_subword_prefix", nullptr},
          {"end_of_word_suffix", nullptr},
          {"fuse_unk", spec.bpe.fuse_unknown},
          {"byte_fallback", false},
          {"ignore_merges", spec.bpe.ignore_merges},
          {"vocab", std::move(vocab)},
          {"merges", std::move(merges)}};
}

}  // namespace

std::string to_tokenizer_json(const TokenizerSpec& spec) {
  ordered_json added = ordered_json::array();
  for (const AddedToken& token : spec.added) {
    added.push_back({{"id", token.id},
                     {"content", token.content},
                     {"single_word", token.single_word},
                     {"lstrip", token.lstrip},
                     {"rstrip", token.rstrip},
                     {"normalized", token.normalized},
                     {"special", token.special}});
  }
  ordered_json normalizer = nullptr;
  if (spec.nfc) normalizer = {{"type", "NFC"}};
  ordered_json document = {{"version", "1.0"},
                           {"truncation", nullptr},
                           {"padding", nullptr},
                           {"added_tokens", std::move(added)},
                           {"normalizer", normalizer},
                           {"pre_tokenizer", pre_tokenizer(spec.pre_tokenizer)},
                           {"post_processor", post_processor(spec)},
                           {"decoder", byte_level(true, true, true)},
                           {"model", model(spec)}};
  return document.dump(1) + "\n";
}

}  // namespace deltad
